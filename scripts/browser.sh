#!/usr/bin/env bash
# The browser that the tests of pages drive: Debian's Chromium, which is installed where there is none.
set -euo pipefail

for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name" >/dev/null; then
    exit 0
  fi
done

if ! command -v apt-get >/dev/null; then
  echo "scripts/browser.sh: there is no apt-get here; install Chromium or Google Chrome so that \`chromium\` runs" >&2
  exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "scripts/browser.sh: Chromium is wanted; run as root: apt-get install chromium" >&2
    exit 1
  fi
  as_root=(sudo)
fi

"${as_root[@]}" apt-get update -qq
# chromium-sandbox and others that it recommends are not needed to run it headless; a font is.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  chromium fonts-dejavu-core >/dev/null
