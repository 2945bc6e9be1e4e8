-- Takes a token from every bucket of KEYS, or from none.
-- ARGV: of each bucket the step (whole seconds, nanoseconds of the rest) and
-- the time in which it fills (nanoseconds).
-- A bucket is the instant at which it is full again, "seconds:nanoseconds" of
-- this server's clock; numbers here are doubles, so a whole instant would not
-- fit into one. The answer: nanoseconds to wait (0: taken), and of each bucket
-- the nanoseconds until it is full. It is what bucket.rs does.
local words = redis.call('MGET', unpack(KEYS))
local delay, levels, fulls, steps = 0, {}, {}, {}
for i = 1, #KEYS do
  local step_s, step_n, fill = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local step = step_s * 1e9 + step_n
  local full_s, full_n, level = now_s, now_n, 0
  local s, n = string.match(words[i] or '', '^(%d+):(%d+)$')
  if s then
    s, n = tonumber(s), tonumber(n)
    level = (s - now_s) * 1e9 + (n - now_n)
    if level > fill then
      -- The clock went back: nothing is emptier than empty.
      level = fill
      full_s, full_n = now_s + math.floor(fill / 1e9), now_n + fill % 1e9
    elseif level > -step then
      full_s, full_n = s, n
    else
      level = 0
    end
  end
  levels[i], fulls[i], steps[i] = level, { full_s + step_s, full_n + step_n }, step
  if level + step > fill then
    delay = math.max(delay, level + step - fill)
  end
end
local answer = { delay }
for i = 1, #KEYS do
  local level = levels[i]
  if delay == 0 then
    level = level + steps[i]
    local s, n = fulls[i][1], fulls[i][2]
    s, n = s + math.floor(n / 1e9), n % 1e9
    -- Forgotten when it decides as one that was never used.
    local keep = math.ceil((level + steps[i]) / 1e6) + 1
    redis.call('SET', KEYS[i], string.format('%.0f:%.0f', s, n), 'PX', string.format('%.0f', keep))
  end
  answer[i + 1] = math.max(level, 0)
end
return answer
