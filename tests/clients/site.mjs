// The client's own site: what it serves, and what came to it.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'

const TYPES = { js: 'text/javascript', json: 'application/json', jwt: 'application/oauth-authz-req+jwt' }
const BLANK = '<!DOCTYPE html><html lang="en"><title>client</title><link rel="icon" href="data:,"><body>here'

export class Site {
  /** By path: a text, or a function of the request that gives one or a status. */
  pages = new Map()
  /** What came: method, address, headers, body; the oldest first. */
  requests = []

  /** Opens it where the provider may reach it. */
  static async open() {
    const site = new Site()
    const [cert, key] = ['cert.pem', 'key.pem'].map((name) => readFileSync(`${process.env.DOORWARD_DIR}/${name}`))
    site.server = createServer({ cert, key }, (request, response) => site.#answer(request, response))
    site.port = Number(process.env.DOORWARD_SITE)
    site.origin = `https://127.0.0.1:${site.port}`
    await new Promise((listening) => site.server.listen(site.port, '127.0.0.1', listening))
    return site
  }

  async #answer(request, response) {
    const body = (await request.setEncoding('utf8').toArray()).join('')
    const { method, url, headers } = request
    const { pathname } = new URL(url, this.origin)
    const asked = { method, url, path: pathname, headers, body }
    this.requests.push(asked)
    const page = this.pages.get(pathname) ?? BLANK
    const told = typeof page === 'function' ? await page(asked) : page
    response.setHeader('content-type', TYPES[/\.(\w+)$/.exec(pathname)?.[1]] ?? 'text/html; charset=utf-8')
    if (typeof told === 'number') response.writeHead(told)
    response.end(typeof told === 'string' ? told : '')
  }

  /** The requests to a path, once there are so many of them. */
  async arrived(path, count = 1) {
    for (let waited = 0; waited < 60_000; waited += 20) {
      const found = this.requests.filter((request) => request.path === path)
      if (found.length >= count) return found
      await new Promise((done) => setTimeout(done, 20))
    }
    throw new Error(`nobody came to ${path}`)
  }

  async close() {
    this.server.closeAllConnections()
    await new Promise((closed) => this.server.close(closed))
  }
}
