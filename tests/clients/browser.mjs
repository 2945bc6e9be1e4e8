// A real browser before every page.
import { base, callback, challenge, desk, issuer } from './setting.mjs'
import { accessible, close, launch, person, shot, signIn, site, told } from './chromium.mjs'
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'

before(launch)
after(close)

/** The address of an authorization request. */
function request(client_id, parameters = {}) {
  const url = new URL(`${issuer}/authorize`)
  url.search = new URLSearchParams({
    client_id,
    redirect_uri: callback,
    response_type: 'code',
    scope: 'openid profile email',
    state: 'a state',
    nonce: 'n',
    code_challenge: challenge,
    code_challenge_method: 'S256',
    ...parameters,
  })
  return url.href
}

/** What was posted to the client. */
const posted = () => site.requests.filter(({ method }) => method === 'POST').map(({ body }) => body)

const width = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)

const error = (page) => page.textContent('#doorward-error')

test('sign-in, wrong and right; consent, given and remembered', async () => {
  const { context, page, leave } = await person()
  await page.goto(request(desk.id))
  await accessible(page)
  await shot(page, 'sign-in')
  await signIn(page, 'demo', 'wrong')
  assert.ok(await error(page))
  assert.equal(await page.inputValue('input[name=username]'), 'demo')
  assert.equal(await page.inputValue('input[name=password]'), '')
  await accessible(page)
  await shot(page, 'sign-in-wrong')
  await signIn(page)
  await page.waitForSelector('button[name=approve]')
  assert.match(await page.textContent('main'), /Front desk/)
  await accessible(page)
  await shot(page, 'consent')
  for (const cookie of await context.cookies()) {
    assert.match(cookie.name, /^__Host-/)
    assert.ok(cookie.secure && cookie.httpOnly && cookie.sameSite === 'Lax', JSON.stringify(cookie))
  }
  await page.click('button[name=approve]')
  const first = await told(page)
  assert.equal(first.state, 'a state')
  assert.equal(first.iss, issuer)
  assert.ok(first.code)
  await page.goto(request(desk.id))
  assert.notEqual((await told(page)).code, first.code)
  await page.goto(request(desk.id, { scope: 'openid profile email phone' }))
  assert.ok(await page.isVisible('button[name=approve]'), 'more is asked for')
  await page.goto(request(desk.id, { prompt: 'consent' }))
  assert.ok(await page.isVisible('button[name=approve]'), 'asked for again')
  await leave()
})

test('a denied consent', async () => {
  const { page, leave } = await person()
  await page.goto(request(desk.id, { prompt: 'consent' }))
  await signIn(page, 'alice')
  await page.click('button[name=deny]')
  const { error, state, code } = await told(page)
  assert.deepEqual([error, state, code], ['access_denied', 'a state', undefined])
  await leave()
})

test('a locked user sees what one with a wrong password sees', async () => {
  const { page, leave } = await person()
  await page.goto(request(desk.id))
  const texts = []
  for (let tries = 0; tries < 5; tries += 1) {
    await signIn(page, 'victim', 'wrong')
    texts.push(await page.textContent('.alert'))
  }
  await signIn(page, 'victim')
  texts.push(await page.textContent('.alert'))
  await signIn(page, 'nobody', 'wrong')
  texts.push(await page.textContent('.alert'))
  await signIn(page, 'gone')
  texts.push(await page.textContent('.alert'))
  assert.deepEqual([...new Set(texts)].length, 1, texts.join('\n'))
  await shot(page, 'sign-in-locked')
  await leave()
})

test('without scripts everything works', async () => {
  const { page, leave } = await person({ javaScriptEnabled: false })
  await page.goto(request(desk.id, { response_mode: 'form_post', prompt: 'consent' }))
  await signIn(page)
  await page.click('button[name=approve]')
  await page.waitForSelector('#continue')
  await shot(page, 'form-post')
  await page.click('#continue')
  await told(page)
  assert.match(posted()[0], /code=/)
  await page.goto(`${issuer}/connect/endSession`)
  await page.click('button[name=logout-yes]')
  await page.goto(request(desk.id))
  assert.ok(await page.isVisible('input[name=password]'))
  await leave()
})

test('with scripts an answer by form_post sends itself', async () => {
  const { page, leave } = await person()
  await page.goto(request('hybrid', { response_mode: 'form_post', response_type: 'code id_token' }))
  await signIn(page)
  await page.waitForURL(callback)
  const answer = new URLSearchParams(posted()[0])
  assert.equal(answer.get('state'), 'a state')
  assert.ok(answer.get('code') && answer.get('id_token'))
  assert.equal(page.url(), callback)
  await leave()
})

test('an answer in the fragment', async () => {
  const { page, leave } = await person()
  await page.goto(request('hybrid', { response_type: 'id_token token' }))
  await signIn(page)
  const { access_token, id_token, state } = await told(page)
  assert.ok(access_token && id_token && state === 'a state')
  await leave()
})

test('sign-out, asked and done', async () => {
  const { page, leave } = await person()
  await page.goto(request('hybrid', { response_type: 'id_token' }))
  await signIn(page)
  const { id_token } = await told(page)
  await page.goto(`${issuer}/connect/endSession`)
  await accessible(page)
  await shot(page, 'sign-out')
  await page.click('button[name=logout-yes]')
  await page.waitForSelector('button[name=logout-yes]', { state: 'detached' })
  await page.waitForSelector('h1')
  await accessible(page)
  await shot(page, 'signed-out')
  await page.goto(request('hybrid', { prompt: 'none' }))
  assert.equal((await told(page)).error, 'login_required')
  await page.goto(request('hybrid', { response_type: 'id_token' }))
  await signIn(page)
  await told(page)
  const end = new URLSearchParams({
    id_token_hint: id_token,
    post_logout_redirect_uri: 'https://app.test/bye',
    state: 'x',
  })
  await page.goto(`${issuer}/connect/endSession?${end}`)
  // The hint is of an earlier session: its user is asked.
  await page.click('button[name=logout-yes]')
  await page.waitForURL('https://app.test/bye?state=x')
  await leave()
})

test('errors that no client may be told are shown', async () => {
  const { page, leave } = await person()
  const wrong = [
    [request('nobody'), 'invalid_client'],
    [request('hybrid', { redirect_uri: 'https://evil.test/cb' }), 'redirect_uri_mismatch'],
    [request('hybrid', { redirect_uri: `${callback}/` }), 'redirect_uri_mismatch'],
    [request('hybrid', { redirect_uri: 'javascript:alert(1)' }), 'redirect_uri_mismatch'],
    [`${request('hybrid')}&client_id=other`, 'invalid_request'],
  ]
  for (const [url, code] of wrong) {
    const answer = await page.goto(url)
    assert.equal(answer.status(), 400)
    assert.equal(await error(page), code)
    assert.equal(new URL(page.url()).origin, base)
  }
  await accessible(page)
  await shot(page, 'error')
  assert.deepEqual(posted(), [])
  await leave()
})

test('two tabs at once', async () => {
  const { context, page, leave } = await person()
  const other = await context.newPage()
  await page.goto(request('hybrid', { state: 'one' }))
  await other.goto(request(desk.id, { state: 'two', prompt: 'consent' }))
  await signIn(other)
  await other.waitForSelector('button[name=approve]')
  await signIn(page)
  assert.equal((await told(page)).state, 'one')
  await other.click('button[name=approve]')
  assert.equal((await told(other)).state, 'two')
  await leave()
})

test('the back button leads to no dead end', async () => {
  const { page, leave } = await person()
  await page.goto('https://app.test/start')
  await page.goto(request('hybrid', { state: 'one' }))
  await signIn(page)
  assert.equal((await told(page)).state, 'one')
  await page.goBack()
  await page.waitForLoadState()
  // Who is signed in comes back to the client, or may sign in again.
  if (new URL(page.url()).origin === base) {
    await signIn(page)
  }
  const { code, state } = await told(page)
  assert.ok(code, page.url())
  assert.equal(state, 'one')
  await page.goto(request('hybrid', { prompt: 'login' }))
  await signIn(page, 'demo', 'wrong')
  await page.goBack()
  await page.reload()
  await signIn(page)
  assert.ok((await told(page)).code)
  await leave()
})

test('the keyboard is enough', async () => {
  const { page, leave } = await person()
  await page.goto(request(desk.id, { prompt: 'consent' }))
  await page.waitForSelector('#username:focus')
  await page.keyboard.type('demo')
  await page.keyboard.press('Tab')
  await page.keyboard.type('Ch4ng31t-demo')
  await page.keyboard.press('Enter')
  await page.waitForSelector('button[name=approve]')
  await page.focus('button[name=approve]')
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle)
  assert.notEqual(outline, 'none')
  await page.keyboard.press('Enter')
  assert.ok((await told(page)).code)
  await leave()
})

test('in German', async () => {
  const { page, leave } = await person({ locale: 'de-DE' })
  await page.goto(request(desk.id, { prompt: 'consent' }))
  assert.equal(await page.getAttribute('html', 'lang'), 'de')
  await accessible(page)
  await shot(page, 'sign-in-de')
  await signIn(page)
  assert.equal(await page.getAttribute('html', 'lang'), 'de')
  await shot(page, 'consent-de')
  await page.goto(`${issuer}/connect/endSession`)
  await shot(page, 'sign-out-de')
  await page.goto(request('hybrid', { ui_locales: 'fr en', prompt: 'login' }))
  assert.equal(await page.getAttribute('html', 'lang'), 'en')
  await leave()
})

test('in the dark', async () => {
  const light = await person({ colorScheme: 'light' })
  const dark = await person({ colorScheme: 'dark' })
  const colours = []
  for (const { page } of [light, dark]) {
    await page.goto(request(desk.id, { prompt: 'consent' }))
    colours.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor))
  }
  assert.notEqual(colours[0], colours[1])
  await accessible(dark.page)
  await shot(dark.page, 'sign-in-dark')
  await signIn(dark.page)
  await dark.page.waitForSelector('button[name=approve]')
  await accessible(dark.page)
  await shot(dark.page, 'consent-dark')
  await light.leave()
  await dark.leave()
})

test('on a phone nothing is cut off', async () => {
  for (const size of [320, 390]) {
    const { page, leave } = await person({
      viewport: { width: size, height: 740 },
      isMobile: true,
      hasTouch: true,
      deviceScaleFactor: 2,
    })
    await page.goto(request(desk.id, { prompt: 'consent', login_hint: 'x'.repeat(200) }))
    assert.ok((await width(page)) <= 0, 'sign-in is too wide')
    const { height } = await page.locator('button[name=login]').boundingBox()
    assert.ok(height >= 40, `a button of ${height} px`)
    await shot(page, `sign-in-phone-${size}`)
    await signIn(page)
    assert.ok((await width(page)) <= 0, 'consent is too wide')
    await shot(page, `consent-phone-${size}`)
    await page.goto(`${issuer}/connect/endSession`)
    assert.ok((await width(page)) <= 0, 'sign-out is too wide')
    await page.goto(request('nobody'))
    assert.ok((await width(page)) <= 0, 'the error page is too wide')
    await leave()
  }
})

test('no other site shows a page in a frame', async () => {
  const { context, page } = await person()
  const address = request(desk.id).replaceAll('&', '&amp;')
  site.pages.set('/frame', `<!DOCTYPE html><iframe src="${address}"></iframe>`)
  await page.goto('https://app.test/frame')
  await page.waitForTimeout(300)
  const [, frame] = page.frames()
  assert.equal(await frame.locator('input[name=password]').count(), 0)
  await context.close()
})

test('what a page shows of others is text', async () => {
  const { page, leave } = await person()
  let dialogs = 0
  page.on('dialog', (dialog) => {
    dialogs += 1
    return dialog.dismiss()
  })
  const evil = '"><img src=x onerror=alert(1)><script>alert(1)</script>'
  await page.goto(request(desk.id, { login_hint: evil, state: evil, ui_locales: evil }))
  assert.equal(await page.inputValue('input[name=username]'), evil)
  await page.goto(request('hybrid', { state: evil, response_mode: 'form_post' }))
  await signIn(page)
  await page.waitForURL(callback)
  assert.equal(dialogs, 0)
  await leave()
})
