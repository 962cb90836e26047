package preflight

import (
	"sync"
	"time"
)

const (
	// goodFor is how long something is taken to be there that was.
	goodFor = time.Second
	// badFor is how long something is taken to be gone if nobody looks again in between.
	badFor = 15 * time.Second
	// forgetAfter is how long a finding is kept that nobody asks for.
	forgetAfter = 10 * time.Minute
	// leastRest and mostRest bound the time between two looks at what is wrong, which is a hundred times what a look took.
	leastRest = 2 * time.Second
	mostRest  = time.Minute
	// answerWithin is how long a look may take: nobody waits for a server of files that is gone.
	answerWithin = 2 * time.Second
)

// Prober remembers what was found. Many goroutines may use it.
type Prober struct {
	mu    sync.Mutex
	known map[string]*finding
}

type finding struct {
	look    func() string
	text    string // what is wrong, "" when nothing is
	at      time.Time
	asked   time.Time
	goodFor time.Duration
	late    chan string // of a look that took too long, and is not over
}

// New returns a Prober that knows nothing.
func New() *Prober { return &Prober{known: map[string]*finding{}} }

// Known returns what was found of a source last, "" if nothing was wrong or nobody has looked. It looks at nothing.
func (p *Prober) Known(source string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.known[source]; f != nil {
		return f.text
	}
	return ""
}

// Look says what is wrong with a source, "" when nothing is. look finds out; the latest one given counts from then on.
func (p *Prober) Look(source string, look func() string) string {
	return p.LookFor(source, goodFor, look)
}

// LookFor is Look of what costs more: while nothing is wrong it is looked at once in a time.
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

// find looks, without the lock and not for long: a folder may lie on a server that does not answer, and others wait behind who asks. Until it
// answers what was found before holds, and of what was never seen nothing is said: the run shows it.
func (p *Prober) find(f *finding, look func() string) string {
	p.mu.Lock()
	answer, wait := f.late, time.Duration(0) // a late look was waited for before
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

// Again looks once more at all that was wrong, and forgets what nobody asks for. cleared says that something is there again; rest is when
// it is time for the next look.
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
		case now.Sub(f.asked) > forgetAfter && f.goodFor == goodFor: // what costs more is of the configuration, and there is little of it
			delete(p.known, source)
		case f.text != "":
			out = append(out, f)
		}
	}
	return out
}

// Forget has everything looked at again when it is next asked for, because something was changed.
func (p *Prober) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
}
