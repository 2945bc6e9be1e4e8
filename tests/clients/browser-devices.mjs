// A real browser before the pages for devices, those of a sign-out in frames, and
// those for whoever went astray.
import { base, grants, issuer } from './setting.mjs'
import { accessible, close, launch, person, shot, signIn, site } from './chromium.mjs'
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'

before(launch)
after(close)

/** What the television asks for, and what it is told. */
async function ask() {
  const body = new URLSearchParams({ client_id: 'tv', scope: 'openid email' })
  const response = await fetch(`${issuer}/device/code`, { method: 'POST', body })
  assert.equal(response.status, 200)
  return response.json()
}

async function poll({ device_code }) {
  const body = new URLSearchParams({ client_id: 'tv', grant_type: grants.device, device_code })
  return (await fetch(`${issuer}/access_token`, { method: 'POST', body })).json()
}

for (const javaScriptEnabled of [true, false]) {
  test(`a code is entered and the device let in, ${javaScriptEnabled ? 'with' : 'without'} scripts`, async () => {
    const asked = await ask()
    const { page, leave } = await person({ javaScriptEnabled })
    const check = javaScriptEnabled ? accessible : () => {}
    await page.goto(asked.verification_uri)
    await check(page)
    await shot(page, 'device-entry')
    await page.fill('input[name=user_code]', 'BCDF-GHJK')
    await page.keyboard.press('Enter')
    await page.waitForSelector('#doorward-error')
    assert.equal(await page.inputValue('input[name=user_code]'), 'BCDF-GHJK')
    await check(page)
    await shot(page, 'device-entry-wrong')
    await page.fill('input[name=user_code]', asked.user_code.toLowerCase().replace('-', ' '))
    await page.click('#continue')
    await signIn(page, 'demo', 'wrong')
    await page.waitForSelector('#doorward-error')
    await signIn(page)
    await page.waitForSelector('button[name=approve]')
    assert.equal(await page.textContent('#doorward-user-code'), asked.user_code)
    assert.match(await page.textContent('main'), /Television/)
    assert.ok(await page.isVisible('button[name=deny]'))
    await check(page)
    await shot(page, 'device-question')
    await page.click('#approve')
    await page.waitForURL((url) => url.pathname.endsWith('/device/user'))
    await page.waitForSelector('h1')
    assert.equal(await page.locator('form').count(), 0)
    await check(page)
    await shot(page, 'device-approved')
    assert.ok((await poll(asked)).access_token)
    await leave()
  })
}

test('a device is refused at its complete address; in German and in the dark', async () => {
  const asked = await ask()
  const { page, leave } = await person({ locale: 'de-DE', colorScheme: 'dark', viewport: { width: 360, height: 740 } })
  await page.goto(asked.verification_uri_complete)
  assert.equal(await page.getAttribute('html', 'lang'), 'de')
  await signIn(page)
  await page.waitForSelector('button[name=deny]')
  await accessible(page)
  await shot(page, 'device-question-de-dark')
  await page.click('#deny')
  await page.waitForFunction(() => !document.querySelector('form'))
  await accessible(page)
  await shot(page, 'device-denied-de-dark')
  assert.equal((await poll(asked)).error, 'access_denied')
  await leave()
})

test('two tabs let in a device each', async () => {
  const { context, page, leave } = await person()
  const other = await context.newPage()
  const [one, two] = [await ask(), await ask()]
  await page.goto(one.verification_uri_complete)
  await signIn(page)
  await page.waitForSelector('#approve')
  await other.goto(two.verification_uri_complete)
  await other.click('#deny')
  await page.click('#approve')
  await page.waitForFunction(() => !document.querySelector('form'))
  assert.ok((await poll(one)).access_token)
  assert.equal((await poll(two)).error, 'access_denied')
  await leave()
})

test('a sign-out tells a client by a frame and goes on', async () => {
  const { page, leave } = await person()
  const request = new URLSearchParams({
    client_id: 'framed',
    redirect_uri: 'https://app.test/cb',
    response_type: 'code',
    scope: 'openid',
    state: 's',
  })
  // The page goes on when the frame is there: not before it is looked at.
  let looked
  const waits = new Promise((done) => (looked = done))
  site.pages.set('/framed', () => waits.then(() => ''))
  await page.goto(`${issuer}/authorize?${request}`)
  await signIn(page)
  await page.waitForURL('https://app.test/cb?**')
  await page.goto(`${issuer}/connect/endSession?client_id=framed&post_logout_redirect_uri=https%3A%2F%2Fapp.test%2Fbye`)
  await page.click('button[name=logout-yes]')
  const [told] = await site.arrived('/framed')
  const query = new URL(told.url, base).searchParams
  assert.equal(query.get('iss'), issuer)
  assert.ok(query.get('sid'))
  await shot(page, 'signed-out-frames')
  looked()
  await site.arrived('/bye').catch(() => page.click('a[href="https://app.test/bye"]'))
  await page.waitForURL('https://app.test/bye')
  await leave()
})

test('who went astray is shown a page, in their language', async () => {
  for (const [locale, lang] of [['en-GB', 'en'], ['de-DE', 'de']]) {
    const { page, leave } = await person({ locale })
    for (const [path, status] of [
      ['/oauth2/realms/root/realms/nowhere/authorize', 404],
      ['/oauth2/authorize', 400],
      ['/oauth2/authorize/login', 400],
      ['/oauth2/connect/endSession?client_id=a&client_id=b', 400],
      ['/oauth2/device/user?user_code=%ff', 400],
    ]) {
      const answer = await page.goto(`${base}${path}`)
      assert.equal(answer.status(), status, path)
      assert.ok((await page.textContent('#doorward-error')).length > 0, path)
      assert.equal(await page.getAttribute('html', 'lang'), lang, path)
      await accessible(page)
    }
    await shot(page, `error-${lang}`)
    await leave()
  }
})
