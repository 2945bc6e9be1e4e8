// Every page of the console, by keyboard alone.
import test from 'node:test'
import assert from 'node:assert/strict'
import { visitors } from './chromium.mjs'
import { HALF, PAGES, owner, place } from './console-addresses.mjs'

const visitor = visitors()

test('the keyboard reaches every part of every page, in the order of the page', async () => {
  const { context, page } = await visitor()
  await owner(page, 'en-GB')
  const broken = []
  for (const address of PAGES.filter((_, at) => at % 2 === HALF)) {
    await page.goto(`${place}${address}`)
    // What is closed opens by the keyboard as well.
    for (const summary of await page.locator('main summary').all()) await summary.press('Enter')
    const wanted = await page.evaluate(() => {
      const parts = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]'
      const all = [...document.querySelectorAll(`main :is(${parts})`)]
      const seen = all.filter((one) => one.checkVisibility())
      seen.forEach((one, at) => (one.dataset.at = at))
      document.getElementById('main').focus()
      return seen.length
    })
    const reached = []
    for (let count = 0; count < wanted; count += 1) {
      await page.keyboard.press('Tab')
      reached.push(await page.evaluate(() => {
        const { outlineStyle } = getComputedStyle(document.activeElement)
        return outlineStyle === 'none' ? 'no outline' : Number(document.activeElement.dataset.at)
      }))
    }
    const expected = [...Array(wanted).keys()]
    if (String(reached) !== String(expected)) broken.push(`${address}: ${reached}`)
  }
  assert.deepEqual(broken, [])
  await context.close()
})
