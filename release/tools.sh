#!/bin/sh
# Install rpmbuild, where that is possible: as root, on Debian. dpkg-deb is a part of Debian.
command -v rpmbuild >/dev/null 2>&1 && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "no rpm will be made: not root on Debian, and rpmbuild is missing"
    exit 0
fi
echo "installing rpm ..."
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if { apt-get update -qq && apt-get install -y -qq --no-install-recommends rpm; } >"$log" 2>&1; then
    rm -f "$log"
else
    echo "no rpm will be made: apt-get failed:"
    tail -n 5 "$log"
fi
exit 0
