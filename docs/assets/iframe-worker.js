// Search in a page that was opened from disk: browsers refuse web workers from file: addresses, so run the worker's
// script in a hidden frame instead. As with a real worker, messages are copied, and arrive after the call that sends them.
// Pages that come from a web server keep the real Worker.
if (location.protocol === "file:") {
  const later = (data, deliver) => {
    const event = new MessageEvent("message", { data: structuredClone(data) })
    setTimeout(() => deliver(event))
  }

  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = [] // messages that arrive before the script has loaded
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => later(data, (event) => this.report(event))
      const script = inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach((data) => this.postMessage(data))
      }
      script.onerror = () => this.report(new ErrorEvent("error", { message: `cannot load ${url}`, cancelable: true }))
      inside.document.body.appendChild(script)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else later(data, (event) => this.frame.contentWindow?.dispatchEvent(event))
    }

    terminate() {
      this.frame.remove()
    }

    report(event) {
      this[`on${event.type}`]?.(event)
      this.dispatchEvent(event)
    }
  }
}
