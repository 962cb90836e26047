package preflight

import (
	"sync"
	"time"
)

const (
	// goodFor is the time for which a finding without a problem is valid.
	goodFor = time.Second
	// badFor is the time for which a problem is valid if Again does not check it.
	badFor = 15 * time.Second
	// forgetAfter is the time after which an unused finding is removed.
	forgetAfter = 10 * time.Minute
	// leastRest and mostRest limit the rest between two calls of Again. The rest is a hundred times
	// the duration of the checks.
	leastRest = 2 * time.Second
	mostRest  = time.Minute
	// answerWithin is the timeout of a check. A file server may not respond.
	answerWithin = 2 * time.Second
)

// Prober caches findings. It is safe for concurrent use.
type Prober struct {
	mu    sync.Mutex
	known map[string]*finding
}

type finding struct {
	look    func() string
	text    string // problem, or ""
	at      time.Time
	asked   time.Time
	goodFor time.Duration
	late    chan string // result of a check that exceeded its timeout and still runs
}

// New returns a Prober without findings.
func New() *Prober { return &Prober{known: map[string]*finding{}} }

// Known returns the last problem of a source. It returns "" if there was none or the source was
// never checked. It does not check the source.
func (p *Prober) Known(source string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.known[source]; f != nil {
		return f.text
	}
	return ""
}

// Look returns the problem of a source, or "". It calls look unless the last finding is still
// valid. Again uses the latest look function.
func (p *Prober) Look(source string, look func() string) string {
	return p.LookFor(source, goodFor, look)
}

// LookFor is Look with another time for which a finding without a problem is valid. Use it for
// expensive checks.
func (p *Prober) LookFor(source string, good time.Duration, look func() string) string {
	now := time.Now()
	p.mu.Lock()
	f := p.known[source]
	if f == nil {
		f = &finding{}
		p.known[source] = f
	}
	f.look, f.asked, f.goodFor = look, now, good
	if age := now.Sub(f.at); !f.at.IsZero() && (f.text == "" && age < f.goodFor || f.text != "" && age < badFor) {
		defer p.mu.Unlock()
		return f.text
	}
	p.mu.Unlock()
	return p.find(f, look)
}

// find calls look without the lock and with a timeout, because a folder may be on a file server
// that does not respond. After a timeout it returns the previous finding. For a new source that is
// "", and the run reports the problem.
func (p *Prober) find(f *finding, look func() string) string {
	p.mu.Lock()
	answer, wait := f.late, time.Duration(0) // do not wait again for a late check
	p.mu.Unlock()
	if answer == nil {
		answer, wait = make(chan string, 1), answerWithin
		go func() { answer <- look() }()
	}

	text, over := "", false
	select {
	case text = <-answer:
		over = true
	case <-time.After(wait):
		select { // both may be ready
		case text = <-answer:
			over = true
		default:
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if !over {
		f.late = answer
		return f.text
	}
	f.text, f.at, f.late = text, time.Now(), nil
	return text
}

// Again checks all sources with a problem again, and removes unused findings. cleared reports
// whether a problem is gone. rest is the time until the next call.
func (p *Prober) Again() (cleared bool, rest time.Duration) {
	begin := time.Now()
	for _, f := range p.wrong(begin) {
		if p.find(f, f.look) == "" {
			cleared = true
		}
	}
	return cleared, min(max(leastRest, 100*time.Since(begin)), mostRest)
}

func (p *Prober) wrong(now time.Time) (out []*finding) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for source, f := range p.known {
		switch {
		case now.Sub(f.asked) > forgetAfter && f.goodFor == goodFor: // expensive checks are few and belong to the configuration
			delete(p.known, source)
		case f.text != "":
			out = append(out, f)
		}
	}
	return out
}

// Forget removes all findings, for example after a change of the configuration.
func (p *Prober) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
}
