#!/bin/sh
# Install the packages the Slurm tests need, PostgreSQL for the contract suite of stores, and kitty on
# an X server without a screen for pictures, where that is possible: as root, on Debian. Elsewhere
# these tests say why they are skipped.
packages="slurmctld slurmd slurm-client slurmdbd munge mariadb-server slurm-wlm-basic-plugins
slurm-wlm-mysql-plugin lua-socket lua-posix lua5.1 lua5.3 lua5.4 tmux mpich libmpich-dev
postgresql kitty xvfb libgl1-mesa-dri fonts-dejavu-core"
missing=""
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q "install ok installed" || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "tests on Slurm, PostgreSQL and kitty will be skipped: not root on Debian, and missing:$missing"
    exit 0
fi
echo "installing$missing ..."
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
# shellcheck disable=SC2086
if { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    rm -f "$log"
else
    echo "tests on Slurm, PostgreSQL and kitty will be skipped: apt-get failed:"
    tail -n 5 "$log"
fi
exit 0
