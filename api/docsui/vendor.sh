#!/usr/bin/env bash
# Fetches a version of Stoplight Elements into assets/: vendor.sh 9.0.15
# Afterwards name that version in page.html; TestThePageLoadsOnlyFilesThatAreServed fails until that is done.
set -euo pipefail
version=${1:?usage: vendor.sh VERSION}
cd "$(dirname "$0")/assets"

fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
# npm pack checks the tarball against the registry's integrity sum; npm install would bring 200 MB of dependencies.
(cd "$fetched" && npm pack --silent "@stoplight/elements@$version" >/dev/null && tar xzf ./*.tgz)

rm -rf elements-*
mkdir "elements-$version"
cp "$fetched"/package/{LICENSE,web-components.min.js.LICENSE.txt} "elements-$version/"
for file in web-components.min.js styles.min.css; do
  gzip -9nc "$fetched/package/$file" >"elements-$version/$file.gz"
done
