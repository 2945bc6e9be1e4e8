// Every page of the console, in a real browser: in light and dark, on a wide window and
// a narrow one, in both languages.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { accessible, start, watch } from './chromium.mjs'
import { HALF, PAGES, owner, place } from './console-addresses.mjs'

let browser

before(async () => {
  browser = await start()
})

after(() => browser?.close())

for (const [locale, colorScheme, width] of [
  ['en-GB', 'light', 1280],
  ['de-DE', 'dark', 360],
].slice(HALF, HALF + 1)) {
  test(`every page can be used by everybody: ${locale}, ${colorScheme}, ${width} px`, async () => {
    const viewport = { width, height: 800 }
    const context = await browser.newContext({ locale, colorScheme, viewport })
    const violations = []
    await watch(context, (what) => violations.push(what))
    const page = await context.newPage()
    page.setDefaultTimeout(60_000)
    const errors = []
    page.on('pageerror', (error) => errors.push(String(error)))
    await owner(page, locale)
    const broken = []
    for (const address of PAGES) {
      await page.goto(`${place}${address}`)
      await page.locator('h1').waitFor()
      await accessible(page).catch((error) => broken.push(error.message))
      const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
      if (wide) broken.push(`${address} is wider than the window`)
    }
    assert.deepEqual(broken, [])
    assert.deepEqual(violations, [])
    assert.deepEqual(errors, [])
    await context.close()
  })
}
