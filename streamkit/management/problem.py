"""The response to a request that is refused or fails."""

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

from streamkit.config.secret import without_secrets

__all__ = ["problem"]


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response that describes an error, as JSON.

    Args:
        status: The HTTP status code.
        detail: What is wrong and what to do; secrets in the text are hidden.
        headers: Further headers.
    """
    return JSONResponse({"status": status, "error": without_secrets(detail)}, status_code=status, headers=headers)
