// People whose sign-in at the console is old, in a real browser.
import test from 'node:test'
import assert from 'node:assert/strict'
import { accessible, signIn, visitors } from './chromium.mjs'

const place = `${process.env.DOORWARD_ADMIN}/console`

const visitor = visitors()

/** Waits until the sign-in is older than the console takes for a change. */
const age = (page) => page.waitForTimeout(4_000)

test('who signed in long ago signs in again, and comes back to the change', async () => {
  const { context, page, violations } = await visitor()
  await page.goto(`${place}/gateway/services`)
  await page.getByRole('link', { name: 'Sign in with your account' }).click()
  await signIn(page, 'alice')
  await page.waitForURL(`${place}/gateway/services`)
  await age(page)
  // The provider asks for the password, although its session is alive.
  await page.getByRole('link', { name: 'New' }).click()
  await signIn(page, 'alice')
  await page.waitForURL(`${place}/new/services`)
  await page.fill('[name="f.name"]', 'web')
  await page.fill('[name="f.host"]', 'web.example')
  await age(page)
  // A form that comes too late says so, and a link leads to the sign-in.
  await page.getByRole('button', { name: 'Show the difference' }).first().click()
  await page.getByText('You signed in too long ago').waitFor()
  await accessible(page)
  await page.getByRole('link', { name: 'Sign in again' }).focus()
  await page.keyboard.press('Enter')
  await signIn(page, 'alice')
  await page.waitForURL(`${place}/new/services`)
  await page.goto(`${place}/gateway/services`)
  await page.locator('h1').waitFor()
  assert.equal(await page.getByRole('link', { name: 'web', exact: true }).count(), 0)
  assert.deepEqual(violations, [])
  await context.close()
})
