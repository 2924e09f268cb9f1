"""Whether the model hub can be reached: found out in one short attempt, before anything is loaded from it."""

from __future__ import annotations

import logging
import os

from pagoda_inference.model.errors import ModelLoadError, first_line

logger = logging.getLogger(__name__)

_ATTEMPT_S = 5.0
"""For a connection, and again for an answer. Looking a name up is the system's and has limits of its own."""


def reach(model_id: str) -> None:
    """Ask the hub once for ``model_id``. Where it does not answer, this process and those that it starts load from the
    hub's cache alone: each file would else be tried for half a minute.

    What the hub answers is for whoever loads. Raises ModelLoadError where there is no answer and the cache has nothing.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    if is_offline_mode():
        return
    try:
        get_hf_file_metadata(hf_hub_url(model_id, "config.json"), timeout=_ATTEMPT_S)
    except (HfHubHTTPError, ValueError):  # it answers; or the name is none, which it need not be asked
        return
    except Exception as error:  # of its HTTP client, which is not ours to know
        reason = first_line(error).rstrip(".")
        if not isinstance(try_to_load_from_cache(model_id, "config.json"), str):
            raise ModelLoadError(
                f"No model could be read at {model_id} (the hub does not answer: {reason}): check the id and the "
                "network, or download it and name the folder."
            ) from error
        logger.warning("The model hub does not answer (%s): %s comes from its cache.", reason, model_id)
        constants.HF_HUB_OFFLINE = True
        os.environ["HF_HUB_OFFLINE"] = "1"
