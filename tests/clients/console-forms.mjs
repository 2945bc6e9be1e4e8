// Every page that answers a form of the console, in a real browser: differences, refusals,
// results. Nothing is applied.
import test from 'node:test'
import assert from 'node:assert/strict'
import { accessible, visitors } from './chromium.mjs'
import { FORMS, HALF, LOOKS, PAGES, owner, place } from './console-addresses.mjs'

const visitor = visitors()

/** The form of the table that an address is of. */
function known(address) {
  const parts = new URL(address).pathname.split('/').slice(2)
  return FORMS.find((form) => {
    const own = form.split('/').slice(1)
    return own.length === parts.length && own.every((part, at) => part === '{}' || part === parts[at])
  })
}

/** Where the buttons of a page's forms lead; each is marked with its place. */
const buttons = (page) => page.evaluate(() =>
  [...document.querySelectorAll('main form[method=post] :is(button, input[type=submit])')].map((button, at) => {
    button.dataset.at = at
    return button.hasAttribute('formaction') ? button.formAction : button.form.action
  }),
)

for (const look of LOOKS.slice(HALF, HALF + 1)) {
  const { width } = look.viewport
  test(`every answer to a form can be used by everybody: ${look.locale}, ${look.colorScheme}, ${width} px`, async () => {
    const { context, page, violations, errors } = await visitor(look)
    await owner(page, look.locale)
    // Something that can be undone.
    await page.goto(`${place}/identity/groups/new`)
    await page.fill('[name="f.displayName"]', 'undone')
    await page.keyboard.press('Enter')
    await page.locator('input[name=change]').waitFor({ state: 'attached' })
    await page.locator('main form:has([name=change]) button').first().click()
    await page.waitForURL(/\/identity\/groups\/[0-9a-f-]{36}/)
    const met = new Set()
    const broken = []
    for (const address of PAGES) {
      await page.goto(`${place}${address}`)
      await page.locator('h1').waitFor()
      for (const [at, action] of (await buttons(page)).entries()) {
        const form = known(action)
        if (!form || met.has(form)) continue
        // As it stands, and with something typed.
        for (const types of [false, true]) {
          await page.goto(`${place}${address}`)
          await buttons(page)
          await page.evaluate(({ at, types }) => {
            const button = document.querySelector(`[data-at="${at}"]`)
            const texts = button.form.querySelectorAll('input:not([type]), input[type=text], input[type=search]')
            if (types && texts.length) texts[0].value = 'typed'
            button.form.noValidate = true
            window.stale = true
            button.form.requestSubmit(button)
          }, { at, types })
          await page.waitForFunction(() => !window.stale && document.querySelector('h1'))
          await accessible(page).catch((error) => broken.push(`${form}: ${error.message}`))
          for (const other of [3840, width]) {
            await page.setViewportSize({ width: other, height: 800 })
            const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
            if (wide) broken.push(`${form} is wider than ${other} px`)
          }
          met.add(form)
        }
        await page.goto(`${place}${address}`)
      }
    }
    assert.deepEqual(broken, [])
    assert.deepEqual(FORMS.filter((form) => !met.has(form)), [])
    assert.deepEqual(violations, [])
    assert.deepEqual(errors, [])
    await context.close()
  })
}
