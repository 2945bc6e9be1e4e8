-- haproxy asks Doorward whether a request may pass: docs/forward-auth.md.
--
--   http-request lua.forward-auth URL HEADER[,HEADER…]
--
-- URL is that of the service, with its `/forward-auth`. The named headers are
-- taken from the answer alone: a copy that the client has sent is deleted.
-- Any other answer than 2xx goes to the client. It needs haproxy 2.6 or newer.

-- What is about the client's connection or body, or what only a proxy may say.
local withheld = {
  ["connection"] = true, ["content-encoding"] = true, ["content-length"] = true,
  ["expect"] = true, ["host"] = true, ["keep-alive"] = true, ["te"] = true,
  ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
}

-- What the client is told of a refusal.
local returned = { "content-type", "cache-control", "location", "retry-after",
  "set-cookie", "www-authenticate" }

-- The headers of the sub-request.
local function question(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not withheld[name] and name:find("^x%-forwarded%-") == nil then
      headers[name] = {}
      for _, value in pairs(values) do table.insert(headers[name], value) end
    end
  end
  headers["x-forwarded-for"] = { txn.sf:src() }
  headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
  headers["x-forwarded-method"] = { txn.sf:method() }
  headers["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }
  headers["x-forwarded-uri"] = { txn.sf:pathq() }
  return headers
end

-- Ends the request with an answer of its own.
local function refuse(txn, status, answer)
  local reply = txn:reply({ status = status })
  for _, name in ipairs(returned) do
    for _, value in pairs(answer.headers and answer.headers[name] or {}) do
      reply:add_header(name, value)
    end
  end
  reply:set_body(answer.body or "")
  txn:done(reply)
end

core.register_action("forward-auth", { "http-req" }, function(txn, url, names)
  local client = core.httpclient()
  local asked, answer = pcall(client.get, client, { url = url, headers = question(txn) })
  -- Without an answer nobody passes.
  if not asked or not answer or not answer.status or answer.status < 200 then
    return refuse(txn, 503, {})
  end
  if answer.status > 299 then
    return refuse(txn, answer.status, answer)
  end
  for name in names:gmatch("[^,]+") do
    txn.http:req_del_header(name)
    for _, value in pairs(answer.headers[name:lower()] or {}) do
      txn.http:req_add_header(name, value)
    end
  end
end, 2)
