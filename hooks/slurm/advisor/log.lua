-- One line to the system's log, and to stderr too when ADVISOR_DEBUG is set. `outcome` says what the
-- problem led to, where that is not a job that is submitted unchanged.
--
-- Not by syslog(3), which waits for ever when the log's daemon hangs.

local use = ...

local WARNING = "<12>" -- facility user

return function(problem, quietly, outcome)
  local text = ("advisor: %s: "):format(outcome or "submitted unchanged") .. tostring(problem):gsub("%c", " "):sub(1, 400)
  if os.getenv("ADVISOR_DEBUG") then io.stderr:write(text, "\n") end
  if not quietly then use("system").datagram(use("config").syslog, WARNING .. text) end
end
