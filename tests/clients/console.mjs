// People who sign in at the console, in a real browser.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { accessible, shot, signIn, start, watch } from './chromium.mjs'

const place = `${process.env.DOORWARD_ADMIN}/console`

let browser

before(async () => {
  browser = await start()
})

after(() => browser?.close())

/** A person's browser before the console, and what its pages tried in vain. */
async function visitor(options = {}) {
  const context = await browser.newContext({ locale: 'en-GB', ...options })
  const violations = []
  await watch(context, (what) => violations.push(what))
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  return { context, page, violations }
}

/** Goes to a page, and to the provider on the way. */
async function comes(page, to, user) {
  await page.goto(`${place}${to}`)
  await page.getByRole('link', { name: 'Sign in with your account' }).click()
  await signIn(page, user)
  await page.waitForURL(`${place}${to}`)
}

test('an owner signs in, changes something, and is named in the audit log', async () => {
  const { context, page, violations } = await visitor()
  await page.goto(`${place}/gateway/services`)
  await accessible(page)
  await shot(page, 'console-sign-in')
  await comes(page, '/gateway/services', 'alice')
  assert.equal(await page.locator('.person').textContent(), 'alice · owner')
  await page.getByRole('link', { name: 'New' }).click()
  await page.fill('[name="f.name"]', 'web')
  await page.fill('[name="f.host"]', 'web.example')
  await page.locator('form:has([name="f.name"]) button.primary').first().click()
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.waitForURL(/\/console\/gateway\/services\/[0-9a-f-]{36}$/)
  await page.goto(`${place}/audit?kind=entity.create`)
  await page.getByText('user alice / console').first().waitFor()
  await accessible(page)
  await shot(page, 'console-audit')
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.waitForURL(`${place}/signed-out`)
  await accessible(page)
  await shot(page, 'console-signed-out')
  await page.getByRole('link', { name: 'Sign out at the identity provider' }).click()
  await page.click('[name="logout-yes"]')
  await page.waitForURL(`${place}/sign-in`)
  await page.getByRole('link', { name: 'Sign in with your account' }).click()
  await page.locator('input[name=password]').waitFor()
  assert.deepEqual(violations, [])
  await context.close()
})

test('a viewer finds nothing to change, and is refused', async () => {
  const { context, page, violations } = await visitor()
  await comes(page, '/gateway/services', 'vera')
  assert.equal(await page.locator('.person').textContent(), 'vera · viewer')
  assert.equal(await page.getByRole('link', { name: 'New' }).count(), 0)
  await shot(page, 'console-viewer')
  const answer = await page.goto(`${place}/new/services`)
  assert.equal(answer.status(), 403)
  await page.getByText('Your role does not allow this').waitFor()
  // The form's token is in the page: only the role stands in the way.
  const status = await page.evaluate(async (address) => {
    const form_token = document.querySelector('[name=form_token]').value
    const body = new URLSearchParams({ form_token, view: 'delete' })
    return (await fetch(address, { method: 'POST', body })).status
  }, `${place}/preview/services/web`)
  assert.equal(status, 403)
  assert.deepEqual(violations, [])
  await context.close()
})

test('who has no role is told so in their language', async () => {
  const { context, page, violations } = await visitor({ locale: 'de-DE' })
  await page.goto(place)
  await page.getByRole('link', { name: 'Mit Ihrem Konto anmelden' }).click()
  await signIn(page, 'nobody')
  await page.getByText('Keine Ihrer Gruppen hat in der Konsole eine Rolle').waitFor()
  await accessible(page)
  await shot(page, 'console-no-role')
  assert.deepEqual(violations, [])
  await context.close()
})

test('an owner makes a user, finds it by keyboard, and ends its sessions', async () => {
  const { context, page, violations } = await visitor()
  const errors = []
  page.on('pageerror', (error) => errors.push(String(error)))
  await comes(page, '/identity/users', 'alice')
  await accessible(page)
  await page.getByRole('link', { name: 'New' }).click()
  await accessible(page)
  await page.fill('[name="f.userName"]', '<img src=x onerror=alert(1)>')
  await page.fill('[name="f.emails"]', 'mallory@example.com')
  await page.getByRole('button', { name: 'Show the difference' }).click()
  await accessible(page)
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.waitForURL(/\/identity\/users\/[0-9a-f-]{36}/)
  await accessible(page)
  await page.goto(`${place}/identity/users`)
  // `/` leads to the search, and everything else is reached from there.
  await page.keyboard.press('/')
  await page.keyboard.type('ver')
  await page.keyboard.press('Enter')
  await page.waitForURL(/q=ver/)
  await shot(page, 'console-users')
  assert.equal(await page.locator('tbody tr').count(), 1)
  await page.getByRole('link', { name: 'vera', exact: true }).focus()
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'vera', level: 1 }).waitFor()
  await accessible(page)
  await shot(page, 'console-user')
  await page.getByRole('button', { name: 'End all sessions' }).focus()
  await page.keyboard.press('Enter')
  await page.getByText('This is done.').waitFor()
  await page.getByRole('link', { name: 'staff' }).click()
  await page.getByRole('heading', { name: 'staff', level: 1 }).waitFor()
  await page.getByLabel('User name').fill('mallory')
  await page.getByRole('button', { name: 'Add', exact: true }).click()
  await page.getByText('There is no user of this name').waitFor()
  await page.goBack()
  await accessible(page)
  await shot(page, 'console-group')
  await page.setViewportSize({ width: 360, height: 800 })
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
  assert.equal(wide, false)
  assert.deepEqual(violations, [])
  assert.deepEqual(errors, [])
  await context.close()
})

test('a viewer sees users and has nothing to press', async () => {
  const { context, page, violations } = await visitor({ locale: 'de-DE' })
  await page.goto(`${place}/identity/users`)
  await page.getByRole('link', { name: 'Mit Ihrem Konto anmelden' }).click()
  await signIn(page, 'vera')
  await page.getByRole('heading', { name: 'Benutzer', level: 1 }).waitFor()
  await page.getByRole('link', { name: 'alice', exact: true }).click()
  await page.getByRole('heading', { name: 'Sitzungen' }).waitFor()
  await accessible(page)
  assert.equal(await page.locator('main form').count(), 0)
  assert.deepEqual(violations, [])
  await context.close()
})

test('an owner makes, renames and deletes a group by keyboard, and undoes it', async () => {
  const { context, page, violations } = await visitor()
  const errors = []
  page.on('pageerror', (error) => errors.push(String(error)))
  await comes(page, '/identity/groups', 'alice')
  await page.getByRole('link', { name: 'New' }).focus()
  await page.keyboard.press('Enter')
  await page.getByLabel('displayName').fill('<img src=x onerror=alert(1)>')
  await accessible(page)
  await page.keyboard.press('Enter')
  await page.getByText('Nothing is changed yet').waitFor()
  await accessible(page)
  await page.getByRole('button', { name: 'Apply' }).focus()
  await page.keyboard.press('Enter')
  await page.waitForURL(/\/identity\/groups\/[0-9a-f-]{36}/)
  await page.getByRole('heading', { name: '<img src=x onerror=alert(1)>', level: 1 }).waitFor()
  await accessible(page)
  await page.getByRole('link', { name: 'Edit' }).click()
  await page.getByLabel('displayName').fill('Nurses')
  await page.keyboard.press('Enter')
  await shot(page, 'console-difference')
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Nurses', level: 1 }).waitFor()
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.getByText('the audit log can make the group anew').waitFor()
  await accessible(page)
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.goto(`${place}/audit?kind=group.delete`)
  await accessible(page)
  await shot(page, 'console-undo')
  await page.getByRole('button', { name: /^Undo/ }).first().focus()
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Nurses', level: 1 }).waitFor()
  assert.deepEqual(violations, [])
  assert.deepEqual(errors, [])
  await context.close()
})

test('clients, keys and tests of connections have pages that everybody can use', async () => {
  const { context, page, violations } = await visitor()
  await comes(page, '/identity/clients', 'alice')
  await page.getByRole('link', { name: 'New' }).click()
  await accessible(page)
  await page.getByRole('link', { name: 'Web application' }).click()
  await page.getByLabel('client_id').fill('shop')
  await page.getByLabel('redirect_uris', { exact: true }).fill('http://shop.example/cb')
  await page.getByRole('button', { name: 'Show the difference' }).click()
  await page.getByText('must be https').waitFor()
  await accessible(page)
  await page.getByLabel('redirect_uris', { exact: true }).fill('https://shop.example/cb')
  await shot(page, 'console-client')
  await page.getByRole('button', { name: 'Show the difference' }).click()
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Keep this secret' }).waitFor()
  await accessible(page)
  await page.goto(`${place}/identity/keys`)
  await accessible(page)
  await shot(page, 'console-keys')
  await page.getByRole('button', { name: 'Publish successors' }).click()
  await accessible(page)
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByText('published, signs later').first().waitFor()
  await page.goto(`${place}/identity/probes`)
  await page.getByLabel('E-mail address').fill('a@x.example')
  await page.keyboard.press('Enter')
  await page.getByText('names nothing of this kind').waitFor()
  await accessible(page)
  await page.setViewportSize({ width: 360, height: 800 })
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
  assert.equal(wide, false)
  assert.deepEqual(violations, [])
  await context.close()
})

/** Every page that a visitor finds, by its address. */
const PAGES = [
  '', '/refusals', '/explain', '/throttling', '/route-files', '/audit',
  '/gateway/services', '/gateway/routes', '/gateway/plugins', '/gateway/consumers',
  '/gateway/upstreams', '/gateway/certificates', '/gateway/snis', '/gateway/ca_certificates',
  '/new/services', '/new/plugins', '/new/plugins?plugin=rate-limiting',
  '/identity/realms', '/identity/realms/root', '/identity/settings?realm=%2Fstaff',
  '/identity/new-realm', '/identity/users', '/identity/users/new', '/identity/groups',
  '/identity/groups/new', '/identity/clients', '/identity/clients/new',
  '/identity/clients/new?kind=web', '/identity/clients/hr', '/identity/sessions',
  '/identity/keys', '/identity/lockouts', '/identity/probes',
  '/broker/products', '/broker/developers', '/broker/applications', '/nowhere',
]

test('clients and realms are changed by keyboard, and undone', async () => {
  const { context, page, violations } = await visitor()
  const errors = []
  page.on('pageerror', (error) => errors.push(String(error)))
  await comes(page, '/identity/realms', 'alice')
  await page.getByRole('link', { name: 'New' }).focus()
  await page.keyboard.press('Enter')
  await page.getByLabel('path').fill('/staff')
  await accessible(page)
  await page.keyboard.press('Enter')
  await page.getByText('Nothing is changed yet').waitFor()
  await page.getByRole('button', { name: 'Apply' }).focus()
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: '/staff', level: 1 }).waitFor()
  await accessible(page)
  await shot(page, 'console-realm')
  await page.getByRole('link', { name: 'Edit' }).click()
  await page.getByLabel('access_token_lifetime').fill('0')
  await accessible(page)
  await shot(page, 'console-settings')
  await page.keyboard.press('Enter')
  // The list of errors leads to the field.
  await page.getByRole('link', { name: 'access_token_lifetime' }).click()
  await page.keyboard.type('120')
  await page.getByLabel('access_token_lifetime').fill('120')
  await page.keyboard.press('Enter')
  await page.getByText('Nothing is changed yet').waitFor()
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByText('This is done.').waitFor()
  await page.goto(`${place}/identity/clients/new?kind=service`)
  await page.getByLabel('client_id').fill('worker')
  await page.getByLabel('scope').fill('a')
  await page.getByRole('button', { name: 'Show the difference' }).click()
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('link', { name: 'Go on' }).click()
  await accessible(page)
  await page.getByRole('link', { name: 'Edit' }).click()
  await page.getByLabel('client_name').fill('<img src=x onerror=alert(1)>')
  await accessible(page)
  await page.keyboard.press('Enter')
  await page.getByText('<img src=x onerror=alert(1)>').waitFor()
  await shot(page, 'console-client-difference')
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByText('This is done.').waitFor()
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.getByText('gone for good').waitFor()
  await accessible(page)
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.goto(`${place}/audit?kind=client.delete`)
  await page.getByRole('button', { name: /^Undo/ }).first().click()
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('heading', { name: 'Keep this secret' }).waitFor()
  await accessible(page)
  assert.deepEqual(violations, [])
  assert.deepEqual(errors, [])
  await context.close()
})

for (const [locale, colorScheme, width] of [
  ['en-GB', 'light', 1280],
  ['de-DE', 'dark', 1280],
  ['de-DE', 'light', 360],
  ['en-GB', 'dark', 360],
]) {
  test(`every page can be used by everybody: ${locale}, ${colorScheme}, ${width} px`, async () => {
    const viewport = { width, height: 800 }
    const { context, page, violations } = await visitor({ locale, colorScheme, viewport })
    const errors = []
    page.on('pageerror', (error) => errors.push(String(error)))
    const word = locale === 'de-DE' ? 'Mit Ihrem Konto anmelden' : 'Sign in with your account'
    await page.goto(`${place}/gateway/services`)
    await page.getByRole('link', { name: word }).click()
    await signIn(page, 'alice')
    await page.waitForURL(`${place}/gateway/services`)
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
