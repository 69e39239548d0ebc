"""Upload a saved model to the Hub: every file that loaders read, and its card, in one commit.

python scripts/push_to_hub.py outputs/mine org/name --dry_run       (lists the files)
python scripts/push_to_hub.py outputs/mine org/name --private [--revision v2] [--token ...]

A failed upload publishes nothing; run the command again. `HF_HUB_DISABLE_XET=1` uploads by LFS
instead of Xet, `HF_ENDPOINT` selects another Hub.
"""

from __future__ import annotations

from collections.abc import Sequence

from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from simbert_hf.hub import plan_upload, push
from simbert_hf.utils.script import run_script, script_parser


def main(argv: Sequence[str] | None = None) -> None:
    """Plan, print the plan, upload."""
    parser = script_parser(__doc__)
    parser.add_argument("folder", help="what save_pretrained or a training run wrote")
    parser.add_argument("repo_id", help="org/name; a name alone belongs to the token's owner")
    parser.add_argument("--private", action="store_true", help="make the repository private")
    parser.add_argument("--revision", help="branch, created if needed; by default main")
    parser.add_argument("--token", help="by default the stored one (`hf auth login`)")
    parser.add_argument("--commit_message", default="Upload model")
    parser.add_argument("--dry_run", action="store_true", help="list the files and stop")
    args = parser.parse_args(argv)
    validate_repo_id(args.repo_id)
    plan = plan_upload(args.folder)
    print(plan)
    if args.dry_run:
        return
    found = push(
        plan,
        args.repo_id,
        private=args.private or None,
        revision=args.revision,
        token=args.token,
        commit_message=args.commit_message,
    )
    print(found.commit_url)


if __name__ == "__main__":
    run_script(main)
