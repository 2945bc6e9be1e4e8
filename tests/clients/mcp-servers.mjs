// Servers of the Model Context Protocol by the TypeScript SDK, for the door to stand
// before: of its first generation with sessions, of its second without.
import { createServer } from 'node:http'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { Readable } from 'node:stream'
import { McpServer as FirstServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { createMcpHandler, McpServer as SecondServer } from '@modelcontextprotocol/server'
import { z } from 'zod'

const text = (text) => ({ content: [{ type: 'text', text }] })

function furnish(server, object) {
  const add = { inputSchema: object({ a: z.number(), b: z.number() }) }
  server.registerTool('add', add, ({ a, b }) => text(String(a + b)))
  server.registerTool('pay', { inputSchema: object({ amount: z.number() }) }, ({ amount }) => text(`paid ${amount}`))
  server.registerTool('delete', { inputSchema: object({ name: z.string() }) }, () => {
    throw new Error('the door lets nobody delete')
  })
  return server
}

const INFO = { name: 'tools', version: '1' }

async function listen(serve) {
  const seen = []
  const server = createServer((request, response) => {
    seen.push({ method: request.method, headers: request.headers })
    serve(request, response).catch((error) => response.destroy(error))
  })
  server.listen(Number(process.env.DOORWARD_UPSTREAM), '127.0.0.1')
  await once(server, 'listening')
  return {
    seen,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** Serves what `make` makes for each session. */
export function listenWithSessions(make) {
  const sessions = new Map()
  return listen(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id'])
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      })
      await make().connect(transport)
    }
    await transport.handleRequest(request, response)
  })
}

/** The first generation: sessions and streams. */
export const first = () => listenWithSessions(() => furnish(new FirstServer(INFO), (shape) => shape))

/** The second: each request on its own, for clients of both eras. */
export async function second() {
  const handler = createMcpHandler(() => furnish(new SecondServer(INFO), (shape) => z.object(shape)))
  return listen(async (request, response) => {
    const { method, headers } = request
    const body = ['GET', 'HEAD', 'DELETE'].includes(method) ? undefined : Readable.toWeb(request)
    const url = `http://${headers.host}${request.url}`
    const answer = await handler.fetch(new Request(url, { method, headers, body, duplex: 'half' }))
    response.writeHead(answer.status, Object.fromEntries(answer.headers))
    if (!answer.body) return response.end()
    const pieces = Readable.fromWeb(answer.body)
    response.on('close', () => pieces.destroy())
    pieces.on('error', () => response.destroy())
    pieces.pipe(response)
  })
}
