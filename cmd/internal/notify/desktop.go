package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gen2brain/beeep"

	"rouse/internal/ledger"
	"rouse/internal/text"
)

// maxText is how much of a text is shown, in runes.
const maxText = 1000

// nameSender sets the package variable of the library once, so that no reload writes it.
var nameSender = sync.OnceFunc(func() { beeep.AppName = "rouse" })

// Desktop shows notices on the desktop of the user who runs the daemon.
func Desktop() Channel {
	nameSender()
	return desktop{getenv: os.Getenv}
}

type desktop struct{ getenv func(string) string }

// Send implements Channel.
func (d desktop) Send(ctx context.Context, m Message) (Receipt, error) {
	n, body := m.Notice, m.text()
	// Truncated first, so that a long text does not push the signature out.
	if who := signature(n); who != "" {
		body = strings.TrimSpace(text.Truncate(body, maxText) + "\n" + who)
	}

	// Asked each time: the session can end, and another service can start in it.
	markup, err := d.probe(ctx)
	if err != nil {
		return Receipt{}, err
	}
	if err := beeep.Notify(plain(runtime.GOOS, n.Title), inMarkup(markup, plain(runtime.GOOS, body)), ""); err != nil {
		return Receipt{}, err
	}
	return Receipt{Proven: true}, nil // the desktop took it
}

// Check implements Channel.
func (d desktop) Check(ctx context.Context) error {
	_, err := d.probe(ctx)
	return err
}

// unavailable is an ErrUnavailable with a reason that the owner can act on.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("the desktop %w: %s", ErrUnavailable, fmt.Sprintf(format, args...))
}

// signature names the job and the outcome below the text or, where the title does, the agent, unless that stands there too.
func signature(n ledger.Notice) string {
	if n.Job == "" {
		return ""
	}

	who := n.Job
	if n.Outcome != "" {
		who += ": " + strings.ReplaceAll(string(n.Outcome), "_", " ")
	}
	switch {
	case !strings.HasPrefix(n.Title, who):
		return who
	case strings.HasPrefix(n.Title, n.Agent):
		return ""
	}
	return "agent " + n.Agent
}

// plain keeps text from anywhere (a file's name, a model's words) from having a meaning to the programs
// that show it. Some read control characters as escapes and a leading hyphen as an option; and on
// Windows the library may put the text into a PowerShell script, in which $, `, " and ]]> would run
// or end something.
func plain(goos, s string) string {
	s = text.Lines(s)
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		s = "\u2212" + rest
	}

	if goos == "windows" {
		s = strings.NewReplacer("$", "\uff04", "`", "'", `"`, "'", "\u201c", "'", "\u201d", "'", "\u201e", "'", "]]>", "]] >").Replace(s)
	}
	return s
}

// inMarkup escapes a text for a service that interprets it as markup.
func inMarkup(markup bool, s string) string {
	if !markup {
		return s
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

const (
	sessionTimeout = 2 * time.Second
	sessionAge     = 15 * time.Second // minimum time between two probes
)

// Session reports whether this process can show notices on a desktop. The zero value is ready to use.
type Session struct {
	mu     sync.Mutex
	seen   bool
	probed time.Time
}

// Exists reports whether there is a desktop session. Once it has found a session, it returns true until the process ends,
// so that notices wait for the next login.
//
// nolint: contextcheck // it reads local state and returns soon
func (s *Session) Exists() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen || !s.probed.IsZero() && time.Since(s.probed) < sessionAge {
		return s.seen
	}

	ctx, cancel := context.WithTimeout(context.Background(), sessionTimeout)
	defer cancel()
	s.seen, s.probed = !errors.Is(Desktop().Check(ctx), ErrUnavailable), time.Now()
	return s.seen
}
