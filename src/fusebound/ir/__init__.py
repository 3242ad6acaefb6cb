"""The graph IR: values, primitives, the user's operators; text and JSON forms; the verifier."""
