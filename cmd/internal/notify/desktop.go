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

// maxText is the maximum length of the text shown, in runes.
const maxText = 1000

// nameSender sets the application name of the library once. A second write during a reload would be
// a data race.
var nameSender = sync.OnceFunc(func() { beeep.AppName = "rouse" })

// Desktop returns a channel that shows notices on the desktop of the user running the daemon.
func Desktop() Channel {
	nameSender()
	return desktop{getenv: os.Getenv}
}

type desktop struct{ getenv func(string) string }

// Send implements Channel.
func (d desktop) Send(ctx context.Context, m Message) (Receipt, error) {
	n, body := m.Notice, m.text()
	// Truncate before appending, so that a long text does not remove the signature.
	if who := signature(n); who != "" {
		body = strings.TrimSpace(text.Truncate(body, maxText) + "\n" + who)
	}

	// Probe every time: the session can end and another service can start.
	markup, err := d.probe(ctx)
	if err != nil {
		return Receipt{}, err
	}
	if err := beeep.Notify(plain(runtime.GOOS, n.Title), inMarkup(markup, plain(runtime.GOOS, body)), ""); err != nil {
		return Receipt{}, err
	}
	return Receipt{Proven: true}, nil // the desktop service accepted it
}

// Check implements Channel.
func (d desktop) Check(ctx context.Context) error {
	_, err := d.probe(ctx)
	return err
}

// unavailable returns an ErrUnavailable with a reason that tells the user what to fix.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("the desktop %w: %s", ErrUnavailable, fmt.Sprintf(format, args...))
}

// signature returns the line below the text that names the job and its outcome. If the title
// already starts with them, it returns the agent, unless the title starts with the agent too.
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

// plain removes any special meaning a text could have for the programs that show it. Some programs
// interpret control characters as escapes and a leading hyphen as an option. On Windows, the
// library may put the text into a PowerShell script. There, $, `, " and ]]> could run code or end a
// literal.
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

// inMarkup escapes a text if the service interprets markup.
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

// Session reports whether this process can show notices on a desktop. The zero value is ready to
// use.
type Session struct {
	mu     sync.Mutex
	seen   bool
	probed time.Time
}

// Exists reports whether there is a desktop session. Once it has found a session, it returns true
// until the process ends, so that notices wait for the next login.
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
