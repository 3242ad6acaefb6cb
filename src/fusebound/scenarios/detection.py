"""Detection post-processing in plain torch: box decoding and matrix non-maximum suppression."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def decode(anchors: Tensor, deltas: Tensor, size: float) -> Tensor:
    """Corner boxes (n, 4), clipped to a square image, from anchors (cx, cy, w, h) and predicted offsets."""
    centre = anchors[:, :2] + deltas[:, :2] * anchors[:, 2:]
    extent = anchors[:, 2:] * torch.exp(deltas[:, 2:].clamp(max=4.0))
    return torch.cat((centre - extent / 2, centre + extent / 2), dim=1).clamp(0.0, size)


def pairwise_iou(boxes: Tensor) -> Tensor:
    """Intersection over union of every pair: (n, n)."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    side = (high - low).clamp(min=0)
    overlap = side[..., 0] * side[..., 1]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return overlap / (area[:, None] + area[None, :] - overlap + 1e-7)


def matrix_nms(scores: Tensor, boxes: Tensor, labels: Tensor, sigma: float = 2.0) -> Tensor:
    """Scores decayed by overlap with better boxes of the same class (Wang et al., "SOLOv2"); sorted input."""
    same = labels[:, None] == labels[None, :]
    iou = (pairwise_iou(boxes) * same).triu(diagonal=1)
    covered = iou.amax(dim=0)
    decay = torch.exp(-sigma * (iou.square() - covered[:, None].square()))
    return scores * decay.amin(dim=0)


def detect(anchors: Tensor, deltas: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes, scores and labels above a threshold; how many there are depends on the data.

    anchors and deltas are (n, 4) float32, logits (n, classes) float32.
    """
    scores, labels = torch.sigmoid(logits).max(dim=1)
    scores, order = scores.topk(min(512, scores.shape[0]))
    boxes = decode(anchors[order], deltas[order], size=640.0)
    labels = labels[order]
    scores = matrix_nms(scores, boxes, labels)
    keep = scores > 0.5
    return boxes[keep], scores[keep], labels[keep]


def build(*, small: bool = False) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """Post-processing of a 640 x 640 image: 8,400 anchors, 80 classes."""
    torch.manual_seed(0)
    anchors, classes = (64, 5) if small else (8400, 80)
    centres, extents = 640 * torch.rand(anchors, 2), 16 + 240 * torch.rand(anchors, 2)
    deltas = 0.2 * torch.randn(anchors, 4)
    logits = 2 * torch.randn(anchors, classes) - 4
    return detect, (torch.cat((centres, extents), dim=1), deltas, logits)
