"""The house tests read the tree: they need no database. Their shared reader lies beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
