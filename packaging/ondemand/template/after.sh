# The portal offers the session once this has returned.
wait_until_port_used "${host}:${port}" 60 || clean_up 1
