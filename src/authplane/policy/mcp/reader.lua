-- Reads MCP messages inside Envoy, for rules that Envoy decides by itself.
--
-- The reader marks a message as plain if every JSON parser reads it alike and the policy server's own reader
-- (read_request.py) accepts it with the same meaning. It then writes method, subject, id, version, session and the
-- arguments that rules read into the dynamic metadata "authplane.mcp", and age and type of the token if rules read
-- tokens. Of every other message it writes nothing, and no mark means that Envoy calls the policy server. So does a
-- fault of this script. The reader itself grants and refuses nothing, and verifies no signature.
--
-- A function that meets something that is not plain returns nil; its callers pass the nil on.

local byte, find, lower, match, sub = string.byte, string.find, string.lower, string.match, string.sub
local sized_table = require("table.new")

-- By default LuaJIT looks for garbage whenever its memory has doubled, which is every few dozen requests.
collectgarbage("setpause", 400)

-- The limits of the policy server (message_limits.py, methods.py).
local DEPTH, MEMBERS = 64, 10000
local LONGEST_METHOD, LONGEST_NAME, LONGEST_ADDRESS, LONGEST_ID = 128, 256, 4096, 1024
local LONGEST_NUMBER = 24
-- Some parsers round larger whole numbers.
local MOST_DIGITS = 15
-- The limits of tokens (compact_tokens.py, check_claims.py), and how many of them the reader remembers.
local LONGEST_TOKEN, LONGEST_HEADER, LONGEST_SIGNATURE, TOKEN_DEPTH, LONGEST_KEY_ID = 16384, 6144, 1366, 32, 256
local LATEST_TIME = 253402300799
local MOST_TOKENS, LONGEST_REMEMBERED = 1000, 4096

local function set(...)
  local made = {}
  for _, each in ipairs({...}) do made[each] = true end
  return made
end

local function folded(names)
  local made = {}
  for each in pairs(names) do made[lower(each)] = true end
  return made
end

-- A decision may depend on these members, at the top of a message and in its params.
local KNOWN_MEMBERS = set("jsonrpc", "id", "method", "params", "result", "error", "name", "uri", "arguments", "ref",
  "taskId", "_meta")
local FOLDED_MEMBERS = folded(KNOWN_MEMBERS)
local VERSION_MEMBER = "io.modelcontextprotocol/protocolVersion"
local FOLDED_VERSION = lower(VERSION_MEMBER)

-- MCP by version: the newest has no sessions, and its headers repeat what the message says.
local NEWEST = "2026-07-28"
local ASSUMED = "2025-03-26"
local VERSIONS = set("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", NEWEST)

-- The parameter that names what a method is about.
local SUBJECTS = {
  ["tools/call"] = "name", ["prompts/get"] = "name",
  ["resources/read"] = "uri", ["resources/subscribe"] = "uri", ["resources/unsubscribe"] = "uri",
  ["tasks/cancel"] = "taskId", ["tasks/get"] = "taskId", ["tasks/result"] = "taskId", ["tasks/update"] = "taskId",
}
local NAMED_IN_HEADERS = set("tools/call", "prompts/get", "resources/read")
local KNOWN_METHODS = set("initialize", "logging/setLevel", "notifications/cancelled", "notifications/initialized",
  "notifications/progress", "notifications/roots/list_changed", "ping", "prompts/list", "resources/list",
  "resources/templates/list", "server/discover", "subscriptions/listen", "tasks/list", "tools/list",
  "completion/complete")
for method in pairs(SUBJECTS) do KNOWN_METHODS[method] = true end
local FOLDED_METHODS = folded(KNOWN_METHODS)

-- Headers that a decision depends on. Two of one name, and two readers may use different ones.
local SINGLE = set("authorization", "content-encoding", "content-length", "content-type", "last-event-id", "mcp-method",
  "mcp-name", "mcp-protocol-version", "mcp-session-id", "transfer-encoding", ":method", ":path")
-- With one of these, the policy server decides.
local NEVER = set("x-http-method", "x-http-method-override", "x-method-override", "upgrade", "http2-settings",
  ":protocol", "x-envoy-auth-partial-body", "content-encoding")

-- JSON ----------------------------------------------------------------------------------------------------------------

-- What is read of a message so far; one request is read at a time and nothing yields in between.
local text, members, deepest, most_digits
-- The arguments that rules of the target read: by name, and by what a lenient parser could take for the name.
local wanted, wanted_folded

-- RFC 3629 §4: returns the position behind a well-formed sequence of more than one byte.
local function sequence_end(at, first)
  local second, third, fourth = byte(text, at + 1, at + 3)
  if not second or second < 128 or second > 191 then return nil end
  if first >= 194 and first <= 223 then return at + 2 end
  if not third or third < 128 or third > 191 then return nil end
  if first >= 224 and first <= 239 then
    if (first == 224 and second < 160) or (first == 237 and second > 159) then return nil end
    return at + 3
  end
  if not fourth or fourth < 128 or fourth > 191 then return nil end
  if first < 240 or first > 244 or (first == 240 and second < 144) or (first == 244 and second > 143) then return nil end
  return at + 4
end

local function skip_blanks(at)
  local code = byte(text, at)
  while code == 32 or code == 10 or code == 13 or code == 9 do
    at = at + 1
    code = byte(text, at)
  end
  return at, code
end

-- RFC 8259 §7: an escape, without the NUL and without half of a surrogate pair. Returns the position behind it.
local function escape_end(at)
  if find(text, '^["\\/bfnrt]', at + 1) then return at + 2 end
  local high = match(text, "^u(%x%x%x%x)", at + 1)
  if not high or high == "0000" then return nil end
  if not find(high, "^[dD][89a-fA-F]") then return at + 6 end
  if find(high, "^[dD][89abAB]") and find(text, "^\\u[dD][c-fC-F]%x%x", at + 6) then return at + 12 end
  return nil
end

-- Returns the positions of a text's last character and of what follows its closing quote, and whether it has escapes.
-- Texts alone have bytes beyond ASCII.
local function text_end(at)
  local data, escaped = text, false
  local code = byte(data, at)
  while code ~= 34 do
    if not code or code < 32 then
      return nil
    elseif code == 92 then
      escaped = true
      at = escape_end(at)
    elseif code > 127 then
      at = sequence_end(at, code)
    else
      at = at + 1
    end
    if not at then return nil end
    code = byte(data, at)
  end
  return at - 1, at + 1, escaped
end

-- RFC 8259 §6. Larger numbers differ between parsers.
local function number_end(at)
  local digits = match(text, "^%-?%d+()", at)
  if not digits or find(text, "^%-?0%d", at) then return nil end
  local after, code = digits, byte(text, digits)
  if code == 46 then
    after = match(text, "^%d+()", after + 1)
    if not after then return nil end
    code = byte(text, after)
  end
  if code == 69 or code == 101 then
    after = match(text, "^[+-]?%d+()", after + 1)
    if not after then return nil end
  end
  if after - at > LONGEST_NUMBER then return nil end
  if after == digits then return after - at <= most_digits and after or nil end
  -- LuaJIT has no value for exponents of very many digits.
  local value = tonumber(sub(text, at, after - 1))
  return value and value < math.huge and value > -math.huge and after or nil
end

local LITERALS = { [116] = "true", [102] = "false", [110] = "null" }

local skip_value

-- Calls `visit(name, at)` for each member; it returns the position behind the value, or nil. A name that occurs twice,
-- or that is written with an escape, is not plain. Returns the position behind the object.
local function read_object(at, depth, visit)
  members = members + 1
  if depth > deepest or members > MEMBERS then return nil end
  local code
  at, code = skip_blanks(at + 1)
  if code == 125 then return at + 1 end
  local seen = sized_table(0, 4)
  while true do
    if code ~= 34 then return nil end
    local last, after, escaped = text_end(at + 1)
    if not last or escaped then return nil end
    local name = sub(text, at + 1, last)
    if seen[name] then return nil end
    seen[name] = true
    at, code = skip_blanks(after)
    if code ~= 58 then return nil end
    at = visit(name, skip_blanks(at + 1), depth)
    if not at then return nil end
    at, code = skip_blanks(at)
    if code == 125 then return at + 1 end
    members = members + 1
    if code ~= 44 or members > MEMBERS then return nil end
    at, code = skip_blanks(at + 1)
  end
end

local function read_list(at, depth)
  members = members + 1
  if depth > deepest or members > MEMBERS then return nil end
  local code
  at, code = skip_blanks(at + 1)
  if code == 93 then return at + 1 end
  while true do
    at = skip_value(at, depth)
    if not at then return nil end
    at, code = skip_blanks(at)
    if code == 93 then return at + 1 end
    members = members + 1
    if code ~= 44 or members > MEMBERS then return nil end
    at = skip_blanks(at + 1)
  end
end

local function skip_member(_, at, depth) return skip_value(at, depth) end

-- Returns the position behind the value that begins here, inside of `depth` objects and lists.
skip_value = function(at, depth)
  local code = byte(text, at)
  if code == 34 then
    local _, after = text_end(at + 1)
    return after
  elseif code == 123 then
    return read_object(at, depth + 1, skip_member)
  elseif code == 91 then
    return read_list(at, depth + 1)
  end
  local literal = LITERALS[code]
  if not literal then return number_end(at) end
  local after = at + #literal
  return sub(text, at, after - 1) == literal and after or nil
end

-- Returns whether a text is one plain object.
local function read_whole(whole, visit)
  text, members = whole, 0
  local at, code = skip_blanks(1)
  at = code == 123 and read_object(at, 1, visit)
  return at and skip_blanks(at) == #whole + 1
end

-- Messages ------------------------------------------------------------------------------------------------------------

-- What the members of the message say so far, by name; false stands for a value that is not a plain text.
local message, params, arguments, meta, ref
-- The mark in params that a rule would read one of them; no member has such a name.
local WANTED = {}
local NOTHING = {}

-- A lenient parser could take such a member for one that a decision depends on.
local function is_lookalike(name)
  return not find(name, "^[!-~]+$") or FOLDED_MEMBERS[lower(name)]
end

-- Keeps a text without escapes under its name, and false for any other value. Returns the position behind the value.
local function keep_text(kept, name, at, depth)
  if byte(text, at) ~= 34 then
    kept[name] = false
    return skip_value(at, depth)
  end
  local last, after, escaped = text_end(at + 1)
  if not last then return nil end
  kept[name] = not escaped and sub(text, at + 1, last)
  return after
end

local function visit_meta(name, at, depth)
  if name == VERSION_MEMBER then return keep_text(meta, name, at, depth) end
  if not find(name, "^[!-~]+$") or lower(name) == FOLDED_VERSION then return nil end
  return skip_value(at, depth)
end

local function visit_ref(name, at, depth)
  if not KNOWN_MEMBERS[name] and is_lookalike(name) then return nil end
  return keep_text(ref, name, at, depth)
end

-- RFC 8259 §7: returns the text that a text with escapes stands for.
local UNESCAPED = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function utf8(code)
  local char, floor = string.char, math.floor
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 0x40), 0x80 + code % 0x40) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 0x1000), 0x80 + floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
  end
  return char(0xF0 + floor(code / 0x40000), 0x80 + floor(code / 0x1000) % 0x40, 0x80 + floor(code / 0x40) % 0x40,
    0x80 + code % 0x40)
end

local function unescape(written)
  local made, at = {}, 1
  while true do
    local stop = find(written, "\\", at, true)
    if not stop then break end
    made[#made + 1] = sub(written, at, stop - 1)
    local kind = sub(written, stop + 1, stop + 1)
    if kind == "u" then
      local code = tonumber(sub(written, stop + 2, stop + 5), 16)
      at = stop + 6
      if code >= 0xD800 and code <= 0xDBFF then
        code = 0x10000 + (code - 0xD800) * 0x400 + tonumber(sub(written, stop + 8, stop + 11), 16) - 0xDC00
        at = stop + 12
      end
      made[#made + 1] = utf8(code)
    else
      made[#made + 1] = UNESCAPED[kind]
      at = stop + 2
    end
  end
  made[#made + 1] = sub(written, at)
  return table.concat(made)
end

-- Keeps a value that rules read. Rules see no lists and objects here, and Lua has no null in tables.
local function keep_value(kept, name, at)
  local code = byte(text, at)
  if code == 34 then
    local last, after, escaped = text_end(at + 1)
    if not last then return nil end
    local written = sub(text, at + 1, last)
    kept[name] = escaped and unescape(written) or written
    return after
  elseif code == 116 or code == 102 then
    kept[name] = code == 116
    return skip_value(at, 0)
  end
  local after = number_end(at)
  if not after then return nil end
  -- Zero has no sign.
  kept[name] = tonumber(sub(text, at, after - 1)) + 0
  return after
end

-- A lenient parser could take such an argument for one that rules read.
local function is_wanted_lookalike(name)
  return not find(name, "^[ -~]*$") or wanted_folded[lower(match(name, "^ *(.-) *$"))]
end

local function visit_argument(name, at, depth)
  if wanted[name] then return keep_value(arguments, name, at) end
  if is_wanted_lookalike(name) then return nil end
  return skip_value(at, depth)
end

local function visit_params(name, at, depth)
  -- Of methods other than tools/call, rules read the params themselves: the policy server decides then.
  if wanted and (wanted[name] or is_wanted_lookalike(name)) then params[WANTED] = true end
  if not KNOWN_MEMBERS[name] then
    if is_lookalike(name) then return nil end
    return skip_value(at, depth)
  elseif name == "name" or name == "uri" or name == "taskId" then
    return keep_text(params, name, at, depth)
  elseif name == "_meta" then
    meta = {}
    return byte(text, at) == 123 and read_object(at, depth + 1, visit_meta) or nil
  elseif name == "ref" and byte(text, at) == 123 then
    ref = {}
    return read_object(at, depth + 1, visit_ref)
  elseif name == "arguments" then
    params.arguments = byte(text, at)
    if wanted and params.arguments == 123 then return read_object(at, depth + 1, visit_argument) end
  end
  return skip_value(at, depth)
end

-- An id is sent back as it is written. Lists, objects, null and truth values are no ids that every client knows.
local function keep_id(at)
  local after
  if byte(text, at) == 34 then
    after = skip_value(at, 0)
  else
    after = number_end(at)
  end
  if not after or after - at > LONGEST_ID then return nil end
  message.id = sub(text, at, after - 1)
  return after
end

local function visit_message(name, at, depth)
  if name == "jsonrpc" or name == "method" then
    return keep_text(message, name, at, depth)
  elseif name == "id" then
    return keep_id(at)
  elseif name == "params" then
    params = sized_table(0, 4)
    return byte(text, at) == 123 and read_object(at, depth + 1, visit_params) or nil
  elseif name == "result" or name == "error" or (not KNOWN_MEMBERS[name] and is_lookalike(name)) then
    return nil
  end
  return skip_value(at, depth)
end

local function is_method(name)
  if not name then return false end
  if KNOWN_METHODS[name] then return true end
  return #name <= LONGEST_METHOD and find(name, "^[!-~]+$") and not FOLDED_METHODS[lower(name)]
end

local function fit_subject(value, member)
  local longest = member == "uri" and LONGEST_ADDRESS or LONGEST_NAME
  return value and #value <= longest and find(value, "^[ -~]+$") and value or nil
end

-- Returns what a call is about: empty if its method is about nothing.
local function subject_of(method)
  local member = SUBJECTS[method]
  if member then return fit_subject(params[member], member) end
  if method ~= "completion/complete" then return "" end
  if not ref then return nil end
  if ref.type == "ref/prompt" and ref.uri == nil then return fit_subject(ref.name, "name") end
  if ref.type == "ref/resource" and ref.name == nil then return fit_subject(ref.uri, "uri") end
  return nil
end

-- Something on the way may act by the headers and the server by the message: they must say the same.
local function agrees(method, subject, version, front)
  local named, told = front["mcp-name"], meta and meta[VERSION_MEMBER]
  if told ~= nil and told ~= front["mcp-protocol-version"] then return false end
  if front["mcp-method"] ~= nil and front["mcp-method"] ~= method then return false end
  -- A name may be encoded (=?base64?…?=), and other methods choose what it repeats.
  if named and (not NAMED_IN_HEADERS[method] or named ~= subject or find(named, "^=%?")) then return false end
  if version ~= NEWEST or find(method, "^notifications/") then return true end
  return told ~= nil and front["mcp-method"] ~= nil and (named ~= nil or not NAMED_IN_HEADERS[method])
end

-- Returns what a plain message says, or nil.
local function read_message(body, front)
  message, params, arguments, meta, ref = sized_table(0, 4), NOTHING, wanted and {}, nil, nil
  deepest, most_digits = DEPTH, MOST_DIGITS
  if not read_whole(body, visit_message) then return nil end
  local method, version = message.method, front["mcp-protocol-version"] or ASSUMED
  if message.jsonrpc ~= "2.0" or not is_method(method) or not VERSIONS[version] then return nil end
  -- Only notifications have no id: an answer to another message without one has nobody who waits for it.
  if (message.id == nil) ~= (find(method, "^notifications/") ~= nil) then return nil end
  if method == "tools/call" then
    -- A null stands for no arguments.
    local first = params.arguments
    if first and first ~= 123 and first ~= 110 then return nil end
  else
    if params[WANTED] then return nil end
    arguments = wanted and {}
  end
  local subject = subject_of(method)
  if not subject or not agrees(method, subject, version, front) then return nil end
  -- Envoy takes an empty table for a list.
  if wanted then arguments[""] = true end
  return { method = method, subject = subject, id = message.id, version = version,
           session = front["mcp-session-id"] or "", params = arguments }
end

-- The names of the arguments that rules of a target read, one a line, and what is made of them.
local targets = {}

local function want(names)
  if not names then
    wanted, wanted_folded = nil, nil
    return
  end
  local known = targets[names]
  if not known then
    known = { set(), {} }
    for name in string.gmatch(names, "[^\n]+") do known[1][name] = true end
    known[2] = folded(known[1])
    targets[names] = known
  end
  wanted, wanted_folded = known[1], known[2]
end

-- Tokens --------------------------------------------------------------------------------------------------------------

-- Envoy's jwt_authn filter verifies tokens. What the policy server demands besides (compact_tokens.py, check_claims.py)
-- depends on the text of the token alone, apart from the time: the reader looks at each token once.

local DIGITS = {}
for at, code in ipairs({byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", 1, 64)}) do
  DIGITS[code] = at - 1
end

-- RFC 4648 §5, without padding: returns the bytes, or nil if the bits that belong to no byte are not zero.
local function decode(part)
  local made, held, bits = {}, 0, 0
  for at = 1, #part do
    held, bits = held * 64 + DIGITS[byte(part, at)], bits + 6
    if bits >= 8 then
      bits = bits - 8
      made[#made + 1] = string.char(math.floor(held / 2 ^ bits))
      held = held % 2 ^ bits
    end
  end
  return held == 0 and bits < 6 and table.concat(made) or nil
end

local claims, header

local function visit_header(name, at, depth)
  if name == "kid" or name == "typ" then return keep_text(header, name, at, depth) end
  -- RFC 7515 §4.1.11, RFC 7797: the policy server knows no extensions that change what is signed.
  if name == "crit" or name == "b64" then header.extended = true end
  -- A "cty" can say that there is a token inside the token.
  return name ~= "cty" and skip_value(at, depth) or nil
end

local function visit_claims(name, at, depth)
  if name == "iss" or name == "exp" or name == "iat" then return keep_value(claims, name, at) end
  return skip_value(at, depth)
end

local function is_time(value)
  return type(value) == "number" and value >= 0 and value <= LATEST_TIME
end

-- Returns when a token was issued, its type and its issuer. Returns false for what the policy server rejects whoever has signed it,
-- and nil for a token that the policy server has to judge.
local function read_token(authorization)
  local first, second, third = match(authorization, "^Bearer ([%w_-]+)%.([%w_-]+)%.([%w_-]+)$")
  if not first then return false end
  if #authorization > LONGEST_TOKEN or #first > LONGEST_HEADER or #third > LONGEST_SIGNATURE then return nil end
  local head, body = decode(first), decode(second)
  if not head or not body or not decode(third) then return false end
  header, claims, deepest, most_digits = {}, {}, TOKEN_DEPTH, LONGEST_NUMBER
  if not read_whole(head, visit_header) or not read_whole(body, visit_claims) then return nil end
  local key, kind = header.kid, header.typ
  if not key or type(claims.iss) ~= "string" then return nil end
  if key == "" or #key > LONGEST_KEY_ID or header.extended then return false end
  if not is_time(claims.exp) or not is_time(claims.iat) then return false end
  -- RFC 7515 §4.1.9: "application/" may be left out.
  if kind ~= nil then
    kind = kind and string.gsub(lower(kind), "^application/", "")
    if not kind or kind == "" then return nil end
  end
  return { issued = claims.iat, kind = kind or "", issuer = claims.iss }
end

local remembered, tokens = {}, 0

local function recall_token(authorization)
  local known = remembered[authorization]
  if known then return known end
  known = read_token(authorization)
  if known and #authorization <= LONGEST_REMEMBERED then
    if tokens >= MOST_TOKENS then remembered, tokens = {}, 0 end
    remembered[authorization], tokens = known, tokens + 1
  end
  return known
end

-- Headers -------------------------------------------------------------------------------------------------------------

-- Returns the headers that matter, each with its only value, or nil.
local function read_front(headers)
  local front = {}
  for name, value in pairs(headers) do
    if SINGLE[name] then
      if front[name] then return nil end
      front[name] = value
    elseif NEVER[name] or (name == "connection" and find(lower(value), "upgrade", 1, true)) then
      return nil
    elseif find(name, "_", 1, true) then
      local meant = string.gsub(name, "_", "-")
      if SINGLE[meant] or NEVER[meant] or meant == "connection" or meant == "accept" then return nil end
    end
  end
  return front
end

-- Every server reads such a path in the same way: no dot segments, empty segments, escapes or parameters.
local function is_canonical(path)
  return find(path, "^/[%w._~!$&'()*+,=:@/-]*$") and not find(path, "//", 1, true)
    and not find(path .. "/", "/%.%.?/")
end

local function is_json(kind)
  if kind == "application/json" then return true end
  local charset = kind and match(kind, "^application/json; ?(.+)$")
  charset = charset and lower(charset)
  return charset == "charset=utf-8" or charset == 'charset="utf-8"'
end

-- Returns how many bytes the body of a plain request has, or nil.
local function body_size(front, most_bytes)
  local length, session = front["content-length"], front["mcp-session-id"]
  if front[":method"] ~= "POST" or not is_json(front["content-type"]) or front["content-encoding"] then return nil end
  if not length or not find(length, "^[1-9]%d?%d?%d?%d?%d?%d?$") or tonumber(length) > most_bytes then return nil end
  -- Envoy joins several headers of one name with commas, and these have none of their own.
  if find(front.authorization or "", ",", 1, true) or find(front["last-event-id"] or "", ",", 1, true) then return nil end
  if session and not find(session, "^[!-+\45-~]+$") then return nil end
  if not is_canonical(match(front[":path"] or "", "^[^?]*")) then return nil end
  return tonumber(length)
end

function envoy_on_request(handle)
  local front = read_front(handle:headers())
  local size = front and body_size(front, MOST_BYTES)
  if not size then return end
  local body = handle:body()
  if not body or body:length() ~= size then return end
  local context = handle:filterContext()
  want(context:get("arguments"))
  local plain = read_message(body:getBytes(0, size), front)
  if plain and front.authorization and context:get("tokens") then
    local token = recall_token(front.authorization)
    if token == nil then return end
    if token then
      plain.age, plain.token_type, plain.issuer = os.time() - token.issued, token.kind, token.issuer
    end
  end
  if plain then handle:streamInfo():dynamicMetadata():set("authplane.mcp", "message", plain) end
end
