-- One line to the daemon and one back, all of it within one deadline.
--
-- exchange(path, line, deadline_s, no_answer) returns the answer without its newline, or nil,
-- what went wrong in a word and in words: "absent" (nobody listens: costs microseconds),
-- "timeout", "closed" (hung up, or interrupted) or "garbage" (no whole line).
--
-- The kernel keeps the deadline, with no clock here: a quarter of it for connecting, a quarter
-- for sending, half for the answer, each one call. The daemon writes its line at once, so a
-- piece of one is garbage, and dripping bytes gain it nothing.

local use = ...
local posix = use("posix")

local MAX_ANSWER, MAX_PATH = 16384, 107
local EAGAIN = 11

return function(path, line, deadline_s, no_answer)
  local socket, signal = posix("sys.socket"), posix("signal")
  if #path > MAX_PATH then return nil, "absent", path .. ": too long for a socket" end
  local fd, none = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
  if not fd then return nil, "absent", tostring(none) end

  local function bound(option, seconds)
    local whole = math.floor(seconds)
    local micros = math.max(1, math.floor((seconds - whole) * 1e6))
    assert(socket.setsockopt(fd, socket.SOL_SOCKET, option, whole, micros))
  end

  local function talk()
    bound(socket.SO_SNDTIMEO, deadline_s / 4)
    bound(socket.SO_RCVTIMEO, deadline_s / 2)
    local done, problem, code = socket.connect(fd, { family = socket.AF_UNIX, path = path })
    if not done then
      return nil, code == EAGAIN and "timeout" or "absent", path .. ": " .. tostring(problem)
    end
    done, problem, code = socket.send(fd, line .. "\n")
    if done ~= #line + 1 then
      local late = done or code == EAGAIN
      return nil, late and "timeout" or "closed", "not all sent: " .. tostring(problem)
    end
    if no_answer then return "" end
    local answer
    answer, problem, code = socket.recv(fd, MAX_ANSWER)
    if not answer and code == EAGAIN then return nil, "timeout", "the daemon does not answer" end
    if not answer or answer == "" then
      return nil, "closed", "the daemon hung up: " .. tostring(problem)
    end
    if answer:sub(-1) ~= "\n" then return nil, "garbage", "the daemon's answer is no line" end
    return answer:sub(1, -2)
  end

  -- A daemon that dies while it is written to must not kill sbatch.
  local before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
  local ok, answer, word, text = pcall(talk)
  signal.signal(signal.SIGPIPE, before)
  posix("unistd").close(fd)
  if not ok then return nil, "closed", tostring(answer) end
  return answer, word, text
end
