// A browser without scripts for providers of other makers.
import assert from 'node:assert/strict'

const text = (html) => html.replaceAll('&amp;', '&').replaceAll('&quot;', '"').replaceAll('&#39;', "'")

/** A browser that goes where it is led, and fills in what it meets. */
export class Browser {
  cookies = new Map()

  /** It stays at these sites; the first is the gateway. */
  constructor(sites, user = 'zoe') {
    this.sites = sites
    this.user = user
  }

  /** Another one with the same cookies. */
  copy() {
    const other = new this.constructor(this.user)
    other.sites = this.sites
    other.cookies = structuredClone(this.cookies)
    return other
  }

  async fetch(url, init = {}) {
    const { origin } = new URL(url)
    const mine = [...(this.cookies.get(origin) ?? new Map())].map(([name, value]) => `${name}=${value}`)
    const headers = { ...init.headers, ...(mine.length && { cookie: mine.join('; ') }) }
    const response = await fetch(url, { ...init, headers, redirect: 'manual' })
    const jar = this.cookies.get(origin) ?? new Map()
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line)
      const gone = value === '' || /max-age=0|expires=Thu, 01 Jan 1970/i.test(line)
      if (gone) jar.delete(name)
      else jar.set(name, value)
    }
    this.cookies.set(origin, jar)
    return response
  }

  /** Where the way from an address ends: with JSON, or at somebody else's. */
  async go(url, init) {
    for (let steps = 0; steps < 20; steps += 1) {
      if (!this.sites.includes(new URL(url).origin)) return { url }
      const response = await this.fetch(url, init)
      init = undefined
      if ([301, 302, 303, 307].includes(response.status)) {
        url = new URL(response.headers.get('location'), url).href
        continue
      }
      const body = await response.text()
      if (!/<form/.test(body)) return { url, response, body }
      ;({ url, init } = this.fill(body, url))
    }
    throw new Error(`no end: ${url}`)
  }

  fill(html, url) {
    const [tag] = /<form[^>]*>/.exec(html)
    const action = text(/action="([^"]*)"/.exec(tag)?.[1] ?? url)
    const fields = new URLSearchParams()
    for (const [input] of html.matchAll(/<input[^>]*type="hidden"[^>]*>/g)) {
      const attribute = (name) => text(new RegExp(`${name}="([^"]*)"`).exec(input)?.[1] ?? '')
      fields.append(attribute('name'), attribute('value'))
    }
    if (fields.get('prompt') === 'login') {
      fields.set('login', this.user)
      fields.set('password', 'any')
    }
    if (fields.has('xsrf')) fields.set('logout', 'yes')
    return { url: new URL(action, url).href, init: { method: 'POST', body: fields } }
  }

  /** What the upstream got of a request, at the end of the way there. */
  async json(path) {
    const { response, body } = await this.go(`${this.sites[0]}${path}`)
    assert.equal(response?.status, 200, body)
    return JSON.parse(body)
  }
}
