-- One request to a limit of a fleet: decide() of src/shared/limit_state.cc, in the store. A test compares the two.
-- KEYS: what is known of the limit, its members. Both stay for a day after the last request.
local c, m = KEYS[1], KEYS[2]
local op, id = ARGV[1], ARGV[2]
local seq, have, want = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local need, slack, weight, tie = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local ttl, grace, gap = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local run, seen, stated, stated_version = ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local seen_at, since = tonumber(ARGV[17]), tonumber(ARGV[18])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local f = redis.call('HMGET', c, 'limit', 'version', 'ver', 'learn', 'last', 'hungry', 'sum', 'run', 'doubted')
local known = f[1] ~= false
local limit, version, ver = tonumber(f[1] or 0), tonumber(f[2] or 0), tonumber(f[3] or 0)
local learn, last, hungry, sum = tonumber(f[4] or 0), tonumber(f[5] or 0), tonumber(f[6] or 0), tonumber(f[7] or 0)
local doubted = tonumber(f[9] or 0)

local function unpack_member(text)
  local granted, n, s, w, k, expires, q = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+)$')
  return {granted = tonumber(granted), need = tonumber(n), slack = tonumber(s), weight = tonumber(w), tie = tonumber(k),
          expires = tonumber(expires), seq = tonumber(q)}
end
local function whole(x) return string.format('%.0f', x) end

local function reply(status, granted, target, members)
  local left = 0
  if learn > now then left = learn - now end
  local wanting = 0
  if hungry > 0 and now - hungry < ttl then wanting = 1 end
  return {status, ver, granted or 0, target or 0, left, members or 0, limit, version, wanting, now, math.max(limit - sum, 0)}
end

local function measured()
  return seen_at > 0 and seen_at <= last and seen > doubted and since < ttl and now - seen_at - since <= gap
end

local function is_another_table() return not known or f[8] ~= run or seen > ver or now < last end
local function may_have_stepped() return now - last > gap and sum > 0 and not measured() end

local function keep()
  redis.call('HSET', c, 'limit', whole(limit), 'version', whole(version), 'ver', whole(ver), 'learn', whole(learn),
             'last', whole(last), 'hungry', whole(hungry), 'sum', whole(sum), 'run', run, 'doubted', whole(doubted))
  redis.call('PEXPIRE', c, 86400000)
  redis.call('PEXPIRE', m, 86400000)
end

local function note(granted)
  redis.call('HSET', m, id, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', granted, need, slack, weight, tie,
                                          now + ttl, seq))
  if granted < need then hungry = now end
  last = now
  ver = ver + 1
end

-- share_of() of src/shared/share.cc. `table` holds this member as `own`.
local function share_of(table, own)
  local needs, slacks = 0, 0
  for _, e in pairs(table) do
    needs = needs + e.need
    slacks = slacks + e.slack
  end
  if needs <= limit then
    local rest = limit - needs
    if slacks <= rest then return own.need + own.slack end
    return own.need + math.floor(rest * own.slack / slacks)
  end
  if own.need == 0 then return 0 end
  local left = {}
  for _, e in pairs(table) do
    if e.need > 0 then left[#left + 1] = e end
  end
  local units = limit
  while true do
    local weights = 0
    for _, e in ipairs(left) do weights = weights + e.weight end
    if own.need * weights <= units * own.weight then return own.need end
    local round, still = units, {}
    for _, e in ipairs(left) do
      if e.need * weights <= round * e.weight then
        units = units - e.need
      else
        still[#still + 1] = e
      end
    end
    if #still == #left then
      local over, ahead = units, 0
      for _, e in ipairs(left) do
        over = over - math.floor(units * e.weight / weights)
        if e.tie < own.tie then ahead = ahead + 1 end
      end
      local begin = math.floor(now / ttl) % #left * over % #left
      local share = math.floor(units * own.weight / weights)
      if (ahead - begin) % #left < over then share = share + 1 end
      return share
    end
    left = still
  end
end

local function sync()
  local raw = redis.call('HGETALL', m)
  local table, count, total = {}, 0, 0
  for i = 1, #raw, 2 do
    local e = unpack_member(raw[i + 1])
    table[raw[i]] = e
    count = count + 1
    total = total + e.granted
  end
  local own = table[id]
  if own and seq <= own.seq then return reply('stale') end
  local lost = is_another_table() or sum ~= total
  local doubt = lost or may_have_stepped()
  if doubt and not lost and seen_at > 0 then return reply('full') end
  if not known then
    limit = stated
    version = stated_version
  end
  if seen > ver then ver = seen end
  if doubt then
    learn = now + ttl + grace
    doubted = ver
  end
  local learning = now < learn
  if not learning then
    for name, e in pairs(table) do
      if now >= e.expires + grace then
        redis.call('HDEL', m, name)
        table[name] = nil
        count = count - 1
        total = total - e.granted
      end
    end
    own = table[id]
  end
  local live = own and now < own.expires
  local alone = count == 0 or (count == 1 and own)
  if stated_version > version or (alone and stated_version >= version - version % 1048576) then
    limit = stated
    version = stated_version
  end
  local before = live and own.granted or 0
  local others = total - (own and own.granted or 0)
  local free = math.max(limit - others, 0)
  if not own then
    own = {}
    table[id] = own
    count = count + 1
  end
  own.need, own.slack, own.weight, own.tie = need, slack, weight, tie
  local target = share_of(table, own)
  local granted = have
  if not learning then granted = math.max(math.min(have, before), math.min(math.max(have, target), free)) end
  note(granted)
  sum = others + granted
  keep()
  return reply('ok', granted, target, count)
end

-- list_of() of src/shared/member_list.cc
local function list_of(most)
  local raw, first, last = redis.call('HGETALL', m), {}, nil
  local leased, lapsed, held, needed, lapsed_held = 0, 0, 0, 0, 0
  local function goes_before(a, b) return a.size > b.size or (a.size == b.size and a.name < b.name) end
  local function cut() -- so that few of many members are sorted
    table.sort(first, goes_before)
    for i = #first, most + 1, -1 do first[i] = nil end
    last = first[most]
  end
  for i = 1, #raw, 2 do
    local e = unpack_member(raw[i + 1])
    e.name, e.size = raw[i], math.max(e.granted, e.need)
    if not last or goes_before(e, last) then
      first[#first + 1] = e
      if #first >= 2 * most then cut() end
    end
    if e.expires > now then
      leased, held, needed = leased + 1, held + e.granted, needed + e.need
    else
      lapsed, lapsed_held = lapsed + 1, lapsed_held + e.granted
    end
  end
  cut()
  local lines = {string.format('%.0f %.0f %.0f %.0f %.0f\n', leased, lapsed, held, needed, lapsed_held)}
  for i, e in ipairs(first) do
    lines[i + 1] = string.format('%.0f %.0f %.0f %s\n', e.granted, e.need, e.expires - now, e.name)
  end
  return table.concat(lines)
end

local function list()
  if not known then return reply('ok') end
  local count = redis.call('HLEN', m)
  local answer = reply('ok', 0, 0, count)
  local text, age = nil, 0
  if want > 100 then
    text = list_of(want)
  else
    local kept = redis.call('HMGET', c, 'listed', 'list')
    text, age = kept[2], now - tonumber(kept[1] or 0)
    if not text or age < 0 or age >= math.max(math.floor(ttl / 5), count) then
      text, age = list_of(100), 0
      redis.call('HSET', c, 'listed', whole(now), 'list', text)
    end
  end
  answer[12], answer[13] = text, age
  return answer
end

if op == 'sync' then return sync() end
if op == 'list' then return list() end

local raw = redis.call('HGET', m, id)
local own = raw and unpack_member(raw)

if op == 'leave' then
  if not own or not known then return reply('ok') end
  if seq <= own.seq then return reply('stale') end
  sum = math.max(sum - own.granted, 0)
  redis.call('HDEL', m, id)
  ver = ver + 1
  run = f[8]
  keep()
  return reply('ok')
end

-- renew, borrow, give_back
if own and seq <= own.seq then return reply('stale') end
if not own or is_another_table() or may_have_stepped() or now < learn or now >= own.expires or have > own.granted or sum < own.granted
    or stated_version > version then
  return reply('full')
end
local used = sum - own.granted + have
local more = 0
if op == 'borrow' then more = math.min(want, math.max(limit - used, 0)) end
note(have + more)
sum = used + more
keep()
return reply('ok', have + more, have + more, redis.call('HLEN', m))
