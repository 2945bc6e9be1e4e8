// A person in a real browser, before services behind the openid-connect plugin.
import test, { after, before } from 'node:test'
import assert from 'node:assert/strict'
import { shot as keep, signIn, start } from './chromium.mjs'
import { door, until } from './gateway.mjs'

let browser

before(async () => {
  browser = await start()
})

after(() => browser?.close())

async function person() {
  const context = await browser.newContext({ locale: 'en-GB' })
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  const errors = []
  page.on('console', (message) => {
    if (/content security policy/i.test(message.text())) errors.push(message.text())
  })
  return { context, page, errors }
}

const shot = (page, name) => keep(page, `plugin-${name}`)

/** What the upstream got, as the page shows it. */
const seen = async (page) => JSON.parse(await page.evaluate(() => document.body.innerText))

test('login, consent, the service, a refresh with every request, logout', async () => {
  const { context, page } = await person()
  await page.goto(`${door}/shop?a=1`)
  await shot(page, 'login')
  await signIn(page)
  await page.waitForSelector('button[name=approve]')
  await shot(page, 'consent')
  await page.click('button[name=approve]')
  await page.waitForURL(`${door}/shop?a=1`)
  const first = await seen(page)
  assert.equal(first.headers['x-credential-identifier'], 'demo')
  assert.ok(!String(first.headers.cookie ?? '').includes('session'))
  await shot(page, 'service')
  await page.reload()
  const second = await seen(page)
  assert.notEqual(second.headers.authorization, first.headers.authorization, 'refreshed')
  await shot(page, 'refresh')
  await page.goto(`${door}/shop?bye=1`)
  await page.waitForURL((url) => url.pathname.startsWith('/oauth2') || url.pathname === '/bye')
  await shot(page, 'logout')
  const cookies = await context.cookies(door)
  assert.ok(cookies.every(({ name }) => name !== 'session'), 'the session is gone')
  await context.close()
})

test('two tabs sign in at once', async () => {
  const { context, page } = await person()
  const other = await context.newPage()
  await page.goto(`${door}/shop?tab=1`)
  await other.goto(`${door}/shop?tab=2`)
  await signIn(page, 'alice')
  await page.waitForSelector('button[name=approve]')
  await page.click('button[name=approve]')
  await page.waitForURL(`${door}/shop?tab=1`)
  await signIn(other, 'alice')
  const there = other.waitForURL(`${door}/shop?tab=2`)
  const asked = other.waitForSelector('button[name=approve]').then(() => other.click('button[name=approve]'))
  await Promise.race([there, asked.catch(() => there)])
  await there
  for (const tab of [page, other]) assert.equal((await seen(tab)).headers['x-credential-identifier'], 'alice')
  await shot(other, 'two-tabs')
  await context.close()
})

test('tabs that are opened at the very same moment sign in', async () => {
  const { context, page } = await person()
  const tabs = [page]
  while (tabs.length < 8) tabs.push(await context.newPage())
  await Promise.all(tabs.map((tab, number) => tab.goto(`${door}/quiet?tab=${number}`)))
  await Promise.all(tabs.map((tab) => signIn(tab)))
  await Promise.all(tabs.map((tab, number) => tab.waitForURL(`${door}/quiet?tab=${number}`)))
  for (const tab of tabs) assert.equal((await seen(tab)).headers['x-credential-identifier'], 'demo')
  await shot(page, 'eight-tabs')
  await context.close()
})

test('a session that is over leads back to where it was', async () => {
  const { context, page } = await person()
  await page.goto(`${door}/quiet?x=1`)
  await signIn(page)
  await page.waitForURL(`${door}/quiet?x=1`)
  await context.clearCookies({ name: 'quiet' })
  // The provider still knows who it is: nobody is asked.
  await page.goto(`${door}/quiet?x=2`)
  await page.waitForURL(`${door}/quiet?x=2`)
  assert.equal((await seen(page)).query, 'x=2')
  await context.addCookies([{ name: 'quiet', value: 'broken', url: door }])
  await page.goto(`${door}/quiet?x=3`)
  await page.waitForURL(`${door}/quiet?x=3`)
  await shot(page, 'after-an-ended-session')
  await context.close()
})

test('answers come in a fragment and as a form', async () => {
  for (const mode of ['fragment', 'form']) {
    const { context, page, errors } = await person()
    await page.goto(`${door}/${mode}?m=${mode}`)
    await signIn(page)
    await page.waitForURL(`${door}/${mode}?m=${mode}`)
    assert.equal((await seen(page)).headers['x-credential-identifier'], 'demo')
    assert.deepEqual(errors, [])
    await context.close()
  }
  const { context, page } = await person()
  await page.goto(`${door}/fragment/callback`)
  await page.waitForFunction(() => document.body.innerText.includes('nothing to sign in with'))
  await shot(page, 'nothing-to-sign-in-with')
  await context.close()
})

test('a form that was sent without a session is sent again', async () => {
  const { context, page, errors } = await person()
  await page.goto(`${door}/open`)
  await page.evaluate(() => {
    const form = document.createElement('form')
    form.method = 'post'
    form.action = '/kept?order=7'
    for (const [name, value] of [['text', 'Grüße & "more" <b>'], ['text', 'second']]) {
      const field = document.createElement('input')
      Object.assign(field, { name, value })
      form.append(field)
    }
    document.body.append(form)
    form.submit()
  })
  await page.waitForSelector('input[name=username]')
  await signIn(page)
  await page.waitForURL(`${door}/kept?order=7`)
  const got = await seen(page)
  assert.equal(got.method, 'POST')
  assert.deepEqual(new URLSearchParams(got.body).getAll('text'), ['Grüße & "more" <b>', 'second'])
  assert.deepEqual(errors, [])
  await context.close()
})

test('a script is told where to sign in, and then calls the service', async () => {
  const { context, page } = await person()
  const call = () =>
    page.evaluate(async () => {
      const response = await fetch('/scripted', { headers: { accept: 'application/json' } })
      return { status: response.status, ...(await response.json()) }
    })
  await page.goto(`${door}/open`)
  const refused = await call()
  assert.equal(refused.status, 401)
  assert.equal(refused.login, `${door}/open`)
  await page.goto(`${door}/scripted`)
  await signIn(page)
  await page.waitForURL(`${door}/scripted`)
  const answer = await call()
  assert.equal(answer.status, 200)
  assert.equal(answer.headers['x-credential-identifier'], 'demo')
  await context.close()
})

test('a session that has expired is another login, and nobody is asked', async () => {
  const { context, page } = await person()
  await page.goto(`${door}/short?y=1`)
  await signIn(page)
  await page.waitForURL(`${door}/short?y=1`)
  const first = (await seen(page)).headers.authorization
  await until(async () => {
    await page.reload()
    await page.waitForURL(`${door}/short?y=1`)
    return (await seen(page)).headers.authorization !== first
  })
  await shot(page, 'after-an-expired-session')
  await context.close()
})

test('a person who does not agree is not let in', async () => {
  const { context, page } = await person()
  await page.goto(`${door}/shop?z=1`)
  await signIn(page, 'carol')
  await page.click('button[name=deny]')
  await page.waitForURL((url) => url.pathname === '/shop/callback')
  await page.waitForFunction(() => document.body.innerText.includes('Unauthorized'))
  await shot(page, 'login-refused')
  await context.close()
})

test('a provider that is silent is an error and no loop', async () => {
  const { context, page } = await person()
  const response = await page.goto(`${door}/broken`)
  assert.equal(response.status(), 500)
  await shot(page, 'provider-error')
  await context.close()
})
