// A real browser, and what no page of the provider may do in it.
import { Site } from './site.mjs'
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, before } from 'node:test'
import { chromium } from 'playwright-core'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const SHOTS = process.env.DOORWARD_SCREENSHOTS

const base = process.env.DOORWARD_BASE

/** The site of the client, which the browser knows as `app.test`. */
export let site
let browser

/** Starts a browser alone. */
export async function start(...args) {
  mkdirSync(SHOTS, { recursive: true })
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium'
  // Root may not use the sandbox.
  return chromium.launch({ executablePath, args: ['--no-sandbox', ...args], timeout: 120_000 })
}

/** Starts both. */
export async function launch() {
  site = await Site.open()
  browser = await start(
    `--host-resolver-rules=MAP app.test:443 127.0.0.1:${site.port}`,
    // The client's site speaks to this machine as it would to any other.
    '--disable-features=LocalNetworkAccessChecks,HttpsUpgrades',
  )
}

/** Tells `violated` what the pages of a context try that their policy forbids. */
export async function watch(context, violated) {
  await context.exposeBinding('violated', (_, what) => violated(what))
  await context.addInitScript(() =>
    document.addEventListener('securitypolicyviolation', (event) =>
      window.violated(`${event.violatedDirective} ${event.blockedURI}`),
    ),
  )
}

/** Opens a browser before the tests of a file and closes it after them. What is returned makes
 * a visitor: a context, its page, and what its pages try that they may not, or fail at. */
export function visitors() {
  let alone
  before(async () => {
    alone = await start()
  })
  after(() => alone?.close())
  return async (options = {}) => {
    const context = await alone.newContext({ locale: 'en-GB', ...options })
    const [violations, errors] = [[], []]
    await watch(context, (what) => violations.push(what))
    context.on('weberror', (error) => errors.push(String(error.error())))
    const page = await context.newPage()
    page.setDefaultTimeout(60_000)
    return { context, page, violations, errors }
  }
}

/** Ends both. */
export async function close() {
  await browser?.close()
  await site?.close()
}

/** A person's browser, which also notes what no page may do. */
export async function person(options = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, locale: 'en-GB', ...options })
  const seen = { foreign: [], violations: [], errors: [] }
  site.requests.length = 0
  await watch(context, (what) => seen.violations.push(what))
  context.on('request', (request) => {
    const { origin } = new URL(request.url())
    if (origin !== base && origin !== 'https://app.test') seen.foreign.push(request.url())
  })
  context.on('console', (message) => {
    if (/content security policy/i.test(message.text())) seen.violations.push(message.text())
    // A page that answers 400 is what was asked for.
    else if (message.type() === 'error' && !/Failed to load resource.* 40[0-9]/.test(message.text())) {
      seen.errors.push(`${message.location().url}: ${message.text()}`)
    }
  })
  context.on('weberror', (error) => seen.errors.push(String(error.error())))
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  return {
    context,
    page,
    seen,
    async leave() {
      await context.close()
      assert.deepEqual(seen, { foreign: [], violations: [], errors: [] })
    },
  }
}

export async function signIn(page, user = 'demo', password = `Ch4ng31t-${user}`) {
  await page.fill('input[name=username]', user)
  await page.fill('input[name=password]', password)
  await Promise.all([page.waitForEvent('load'), page.click('button[name=login]')])
  // A form may be answered by a page that leads on by itself.
  await page.locator('#continue').waitFor({ state: 'detached' })
}

/** What the client was told, once the browser is there. */
export async function told(page) {
  await page.waitForURL((url) => url.origin === 'https://app.test')
  const url = new URL(page.url())
  return Object.fromEntries(new URLSearchParams(url.search || url.hash.slice(1)))
}

/** Keeps a picture of the page. */
export const shot = (page, name) => page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true })

/** A page that everybody can use: by the rules of WCAG 2.2, level AA. */
export async function accessible(page) {
  await page.evaluate(AXE)
  const found = await page.evaluate(() =>
    window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice'] }),
  )
  const broken = found.violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`,
  )
  assert.deepEqual(broken, [], page.url())
}
