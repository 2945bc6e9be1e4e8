// Both ceremonies of Web Authentication, for pages that work without them. The
// page says what to do in attributes; what came of it goes into a form of its
// own.
(() => {
  'use strict'
  const root = document.getElementById('passkey')
  if (!root || !window.PublicKeyCredential || !navigator.credentials) return
  const form = document.getElementById(root.dataset.form) || root.querySelector('form')
  const answer = form.elements.namedItem('doorward_passkey')
  const button = root.querySelector('button[type=button]')
  const status = root.querySelector('[role=status]')
  const options = JSON.parse(root.dataset.options)
  const creates = root.dataset.does === 'create'

  const bytes = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0))
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replace(/\+/g, '-')
      .replace(/\//g, '_')
      .replace(/=+$/, '')

  options.challenge = bytes(options.challenge)
  if (options.user) options.user.id = bytes(options.user.id)
  for (const list of [options.allowCredentials, options.excludeCredentials]) {
    for (const one of list || []) one.id = bytes(one.id)
  }

  const send = (credential) => {
    const { response } = credential
    const told = { id: text(credential.rawId), clientDataJSON: text(response.clientDataJSON) }
    if (creates) {
      told.attestationObject = text(response.attestationObject)
      told.transports = response.getTransports ? response.getTransports() : []
    } else {
      told.authenticatorData = text(response.authenticatorData)
      told.signature = text(response.signature)
      if (response.userHandle) told.userHandle = text(response.userHandle)
    }
    answer.value = JSON.stringify(told)
    form.submit()
  }

  let waiting
  const ask = async (mediation) => {
    if (waiting) waiting.abort()
    const mine = (waiting = new AbortController())
    const wish = { publicKey: options, signal: mine.signal }
    if (mediation) wish.mediation = mediation
    try {
      const credential = creates
        ? await navigator.credentials.create(wish)
        : await navigator.credentials.get(wish)
      if (credential) send(credential)
    } catch (error) {
      // The user will hear of what they began, and of nothing else.
      if (mediation || mine !== waiting) return
      status.textContent =
        error.name === 'InvalidStateError' ? root.dataset.known : root.dataset.failed
    }
  }

  button.addEventListener('click', () => {
    status.textContent = ''
    // Who has a passkey needs no name.
    if (root.dataset.form || form.reportValidity()) ask()
  })
  root.hidden = false
  if (root.dataset.autofill && PublicKeyCredential.isConditionalMediationAvailable) {
    PublicKeyCredential.isConditionalMediationAvailable().then((can) => can && ask('conditional'))
  }
})()
