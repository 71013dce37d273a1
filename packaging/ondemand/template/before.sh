# Sourced by the session's script before template/script.sh; find_port and create_passwd are the portal's.
port=$(find_port "${host}")
# Known to this session's owner alone: nobody else who reaches the port sees the page.
password=$(create_passwd 32)
export port password
