// Every page of the console from a small telephone to a 4K screen: nothing is wider than
// the window.
import test from 'node:test'
import assert from 'node:assert/strict'
import { shot, visitors } from './chromium.mjs'
import { HALF, PAGES, owner, place } from './console-addresses.mjs'

const visitor = visitors()

for (const [locale, colorScheme] of [
  ['de-DE', 'light'],
  ['en-GB', 'dark'],
].slice(HALF, HALF + 1)) {
  test(`no page is wider than its window: ${locale}, ${colorScheme}`, async () => {
    const { context, page } = await visitor({ locale, colorScheme })
    await owner(page, locale)
    const broken = []
    for (const address of PAGES) {
      await page.goto(`${place}${address}`)
      await page.locator('h1').waitFor()
      for (const width of [360, 768, 1920, 3840]) {
        await page.setViewportSize({ width, height: width > 1000 ? 2160 : 800 })
        const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
        if (wide) broken.push(`${address} at ${width} px`)
      }
    }
    await page.goto(place)
    await shot(page, `console-4k-${colorScheme}`)
    assert.deepEqual(broken, [])
    await context.close()
  })
}
