// Every page of the console, in a real browser: in light and dark, on a wide window and
// a narrow one, in both languages.
import test from 'node:test'
import assert from 'node:assert/strict'
import { accessible, visitors } from './chromium.mjs'
import { HALF, LOOKS, PAGES, owner, place } from './console-addresses.mjs'

const visitor = visitors()

for (const look of LOOKS.slice(HALF, HALF + 1)) {
  const { width } = look.viewport
  test(`every page can be used by everybody: ${look.locale}, ${look.colorScheme}, ${width} px`, async () => {
    const { context, page, violations, errors } = await visitor(look)
    await owner(page, look.locale)
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
