// The pages of the console, and the owner who looks at them.
import { signIn } from './chromium.mjs'

export const place = `${process.env.DOORWARD_ADMIN}/console`

/** Every page that a visitor finds, by its address. */
export const PAGES = [
  '', '/refusals', '/explain', '/throttling', '/route-files', '/audit',
  '/gateway/services', '/gateway/routes', '/gateway/plugins', '/gateway/consumers',
  '/gateway/upstreams', '/gateway/certificates', '/gateway/snis', '/gateway/ca_certificates',
  '/new/services', '/new/plugins', '/new/plugins?plugin=rate-limiting',
  '/identity/realms', '/identity/realms/root',
  '/identity/new-realm', '/identity/users', '/identity/users/new', '/identity/groups',
  '/identity/groups/new', '/identity/clients', '/identity/clients/new',
  '/identity/clients/new?kind=web', '/identity/clients/hr', '/identity/sessions',
  '/identity/keys', '/identity/lockouts', '/identity/probes',
  '/broker/products', '/broker/developers', '/broker/applications', '/broker-form/products',
  '/broker-form/developers', '/broker-form/applications', '/nowhere',
]

/** Every form, by its address. */
export const FORMS = [
  '/explain', '/audit', '/gateway/services', '/new/services', '/new/routes', '/new/consumers',
  '/new/upstreams', '/new/certificates', '/new/snis', '/new/plugins?plugin=rate-limiting',
  '/identity/new-realm', '/identity/users', '/identity/users/new', '/identity/groups/new',
  '/identity/clients/new?kind=web', '/identity/clients/new?kind=service', '/identity/keys',
  '/identity/probes', '/identity/sessions', '/broker-form/products', '/broker-form/developers',
  '/broker-form/applications',
]

/** Signs in as an owner. */
export async function owner(page, locale) {
  const word = locale === 'de-DE' ? 'Mit Ihrem Konto anmelden' : 'Sign in with your account'
  await page.goto(`${place}/gateway/services`)
  await page.getByRole('link', { name: word }).click()
  await signIn(page, 'alice')
  await page.waitForURL(`${place}/gateway/services`)
}
