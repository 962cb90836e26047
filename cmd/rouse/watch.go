package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/terminal"
	"rouse/internal/domain"
	"rouse/internal/text"
)

const (
	// gatherFor is the delay between an event and a snapshot. A run causes many events at once.
	gatherFor = 200 * time.Millisecond
	// reconnectAfter is the time between two attempts to find a daemon.
	reconnectAfter = 2 * time.Second
	// askFor is the timeout of a request.
	askFor = 10 * time.Second
)

func newWatch(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Shows live what runs, what waits, what comes and what was last; q ends it",
		Long: `Shows live what runs, what waits for you, what comes and what was last. It follows the events of
the daemon, and asks it only when something happened. q or Ctrl-C ends it.

Where standard output is no terminal, and where TERM is dumb, it prints lines: what is on, and then
each event of a run. For programs there is rouse logs -f --json.`,
		RunE: env.inHome(func(cmd *cobra.Command, _ []string, home string) error {
			// Do not use at.open: a command that only watches must not open the home.
			client, err := connectToWatch(cmd.Context(), home)
			if err != nil {
				return err
			}

			out, ok := cmd.OutOrStdout().(*os.File)
			if !ok {
				return watchLines(cmd.Context(), cmd.OutOrStdout(), client)
			}
			screen, err := terminal.OpenScreen(os.Stdin, out, os.Getenv)
			if errors.Is(err, terminal.ErrNoScreen) {
				return watchLines(cmd.Context(), out, client)
			}
			if err != nil {
				return err
			}
			w := &liveScreen{home: home, client: client, screen: screen, paint: terminal.Fixed(nil, 0, terminal.Of(out, os.Environ()).HasColours())}
			return errors.Join(w.run(cmd.Context()), screen.Close())
		}),
	}
}

// connectToWatch connects to the daemon or to a command that executes a run.
func connectToWatch(ctx context.Context, home string) (*api.Client, error) {
	client, _, err := homedir.Connect(ctx, home)
	if errors.Is(err, api.ErrNoDaemon) {
		return nil, fmt.Errorf("no daemon serves %s, so there is nothing to watch; start one with: rouse serve", home)
	}
	return client, err
}

// snapshot holds the data of a screen.
type snapshot struct {
	status  api.Status
	open    []api.Run // running, waiting and queued
	latest  []api.Run
	inbox   []api.Item
	coming  []api.Occurrence
	problem error // error of the request, or nil
}

// maxWatched is the maximum number of runs to request of each kind.
const maxWatched = 30

func takeSnapshot(ctx context.Context, c *api.Client) (s snapshot) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()

	n := fmt.Sprint(maxWatched)
	s.problem = errors.Join(
		c.Get(ctx, "/v1/status", nil, &s.status),
		c.Get(ctx, "/v1/inbox", nil, &s.inbox),
		c.Get(ctx, "/v1/next", url.Values{"n": {fmt.Sprint(maxWatched)}}, &s.coming),
		c.Get(ctx, "/v1/runs", url.Values{"n": {n}, "state": {string(domain.StateFinished)}}, &s.latest),
	)
	s.coming = nextOfEach(s.coming)
	for _, state := range []domain.State{domain.StateRunning, domain.StateWaiting, domain.StateQueued} {
		var runs []api.Run
		s.problem = errors.Join(s.problem, c.Get(ctx, "/v1/runs", url.Values{"n": {n}, "state": {string(state)}}, &runs))
		s.open = append(s.open, runs...)
	}
	return s
}

// followEvents sends new events of the daemon to events. It returns the stream's error.
func followEvents(ctx context.Context, c *api.Client, events chan<- api.Event) error {
	for line, err := range c.Lines(ctx, "/v1/events", url.Values{"follow": {"true"}, "from_now": {"true"}}) {
		if err != nil {
			return err
		}
		e, err := eventOf(line)
		if err != nil {
			return err
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// watchLines prints the open runs, and then each event of a run, until the daemon ends.
func watchLines(ctx context.Context, w io.Writer, c *api.Client) error {
	s := takeSnapshot(ctx, c)
	if s.problem != nil {
		return s.problem
	}

	for _, r := range s.open {
		fmt.Fprintf(w, "%s  %s  #%s\n", outcomeMark(r), jobName(r), r.ID)
	}
	for _, i := range s.inbox {
		fmt.Fprintf(w, "? %s  %s\n", shorten(i.Title, 160), answerHint(i))
	}

	events := make(chan api.Event)
	ended := make(chan error, 1)
	go func() { ended <- followEvents(ctx, c, events) }()
	for {
		select {
		case e := <-events:
			if e.Run != "" {
				printEvent(w, e, time.Now().In(loadZone(s.status.Zone)))
			}
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("the daemon has ended")
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// liveScreen is a screen that shows the state of a home.
type liveScreen struct {
	home   string
	client *api.Client
	screen *terminal.Screen
	paint  terminal.Terminal

	events    chan api.Event
	ended     chan error // result of the event stream
	snapshots chan snapshot
	asking    bool // a snapshot was requested
	failed    bool // the last snapshot failed

	shown snapshot
	doing map[string]string // current activity of each run, by its ID
	gone  bool              // the daemon does not answer
}

// run draws the screen until its user quits. Only run and its callees change the displayed state.
func (w *liveScreen) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.doing = map[string]string{}
	w.events, w.ended, w.snapshots = make(chan api.Event), make(chan error, 1), make(chan snapshot, 1)
	w.follow(ctx)

	second := time.NewTicker(time.Second) // update the displayed times without a request
	defer second.Stop()
	gathered, again := newStopped(), newStopped()
	for {
		select {
		case <-w.screen.Quit():
			return nil
		case <-ctx.Done():
			return nil
		case s := <-w.snapshots:
			w.take(s)
		case e := <-w.events:
			w.note(e)
			gathered.Reset(gatherFor)
		case <-gathered.C:
			if !w.ask(ctx) {
				gathered.Reset(gatherFor)
			}
		case err := <-w.ended:
			w.gone = err == nil || ctx.Err() == nil
			again.Reset(reconnectAfter)
		case <-again.C:
			if !w.reconnect(ctx) {
				again.Reset(reconnectAfter)
			}
		case <-w.screen.Resized():
			w.screen.Forget()
		case <-second.C:
			if (w.failed || w.passed(time.Now())) && !w.gone {
				w.ask(ctx)
			}
		}

		columns, lines := w.screen.Size()
		if err := w.screen.Draw(w.frame(time.Now().In(loadZone(w.shown.status.Zone)), columns, lines)); err != nil {
			return err
		}
	}
}

// follow starts to read the events of the daemon, and requests a snapshot.
func (w *liveScreen) follow(ctx context.Context) {
	c := w.client
	go func() { w.ended <- followEvents(ctx, c, w.events) }()
	w.ask(ctx)
}

// ask requests a snapshot. It returns false if a request is pending, which may be too old.
func (w *liveScreen) ask(ctx context.Context) bool {
	if w.asking {
		return false
	}

	w.asking = true
	c := w.client
	go func() { w.snapshots <- takeSnapshot(ctx, c) }()
	return true
}

// reconnect connects to a restarted daemon and reports whether it succeeded.
func (w *liveScreen) reconnect(ctx context.Context) bool {
	client, err := connectToWatch(ctx, w.home)
	if err != nil {
		return false
	}

	w.client.Close()
	w.client, w.gone = client, false
	w.follow(ctx)
	return true
}

// newStopped returns a stopped timer.
func newStopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// take shows a snapshot. A failed snapshot leaves the screen unchanged.
func (w *liveScreen) take(s snapshot) {
	w.asking, w.failed = false, s.problem != nil
	if w.failed {
		return
	}

	w.shown = s
	known := map[string]bool{}
	for _, r := range s.open {
		known[r.ID] = true
	}
	for id := range w.doing {
		if !known[id] {
			delete(w.doing, id)
		}
	}
}

// note records the current activity of a run from an event.
func (w *liveScreen) note(e api.Event) {
	if e.Run == "" {
		return
	}

	switch e.Kind {
	case "step.started":
		w.doing[e.Run] = "asks its model"
	case "call.started", "skill.progress", "skill.step", "run.waiting":
		if said := eventText(e); said != "" {
			w.doing[e.Run] = said
		}
	}
}

// passed reports whether an upcoming instant on the screen has passed, so that the list must be
// updated. Usually an event of that instant arrives first.
func (w *liveScreen) passed(now time.Time) bool {
	return slices.ContainsFunc(w.shown.coming, func(o api.Occurrence) bool {
		return now.Sub(o.Actual.Time) > time.Second && now.Sub(o.Actual.Time) < 10*time.Second
	})
}

// maxComing is the maximum number of upcoming instants.
const maxComing = 6

// frame returns the lines of the screen, from the most important sections to the latest runs.
func (w *liveScreen) frame(now time.Time, columns, lines int) []string {
	out := w.head(now, columns)

	var running, waiting, queued, coming [][]string
	for _, r := range w.shown.open {
		row := []string{outcomeMark(r), r.ID, jobName(r), when(r.QueuedAt, now)}
		switch r.State {
		case domain.StateRunning:
			running = append(running, []string{api.MarkOf(r.State, "").Shape, r.ID, jobName(r), text.Span(now.Sub(r.StartedAt.Time).Round(time.Second)), w.does(r)})
		case domain.StateWaiting:
			if !asksOwner(w.shown.inbox, r) {
				waiting = append(waiting, row)
			}
		default:
			queued = append(queued, row)
		}
	}
	for _, o := range w.shown.coming {
		coming = append(coming, []string{inText(o.Actual, now), comingJob(o), o.Source, comingNote(o, now.Location())})
	}

	out = append(out, w.section("RUNNING", running, "nothing runs")...)
	out = append(out, w.section("WAITS FOR YOU", askedRows(w.shown.inbox, now), "nothing")...)
	if len(waiting)+len(queued) > 0 {
		out = append(out, w.section("WAITS", append(waiting, queued...), "")...)
	}
	out = append(out, w.section("COMES", coming, "nothing by the clock")...)

	var latest [][]string
	for _, r := range w.shown.latest[:min(len(w.shown.latest), max(lines-len(out)-2, 1))] {
		latest = append(latest, []string{outcomeMark(r), r.ID, jobName(r), when(r.FinishedAt, now), shorten(runSummary(r), 160)})
	}
	return append(out, w.section("LATEST", latest, "nothing has run yet")...)
}

// head returns the lines with the home, its state and its problems.
func (w *liveScreen) head(now time.Time, columns int) []string {
	left, right := "rouse  "+text.OneLine(w.home), "q quits  "+clock(api.At(now), now, time.TimeOnly)
	blanks := max(columns-len([]rune(left))-len([]rune(right)), 2)
	out := []string{w.paint.Paint(terminal.Strong, left) + strings.Repeat(" ", blanks) + w.paint.Paint(terminal.Grey, right)}

	st := w.shown.status
	said := fmt.Sprintf("%d running, %d waiting, %d queued; served by process %d since %s", st.Running, st.Waiting, st.Queued, st.PID, strings.TrimSuffix(when(st.StartedAt, now), " ago"))
	switch {
	case w.gone:
		said = w.paint.Paint(terminal.Bad, "▲ the daemon has ended; this is how it was. As soon as one serves the home, this goes on")
	case st.PID == 0:
		said = "…"
	}
	out = append(out, said)

	for _, problem := range append([]string{st.Problem}, st.WatchProblems...) {
		if problem != "" {
			out = append(out, w.paint.Paint(terminal.Bad, "▲ "+text.OneLine(problem)))
		}
	}
	if len(st.ConfigProblems) > 0 {
		out = append(out, w.paint.Paint(terminal.Bad, "▲ the configuration on disk cannot be used: rouse config check"))
	}
	return out
}

// does returns the current activity of a run, from the events since the screen was opened.
func (w *liveScreen) does(r api.Run) string {
	if said := w.doing[r.ID]; said != "" || r.Steps == 0 {
		return said
	}
	return fmt.Sprintf("step %d", r.Steps)
}

// nextOfEach returns the next occurrence of each job.
func nextOfEach(coming []api.Occurrence) (out []api.Occurrence) {
	seen := map[string]bool{}
	for _, o := range coming {
		if of := comingJob(o); !seen[of] && len(out) < maxComing {
			seen[of] = true
			out = append(out, o)
		}
	}
	return out
}

// asksOwner reports whether a run waits for one of the listed inbox items.
func asksOwner(inbox []api.Item, r api.Run) bool {
	return slices.ContainsFunc(inbox, func(i api.Item) bool { return i.Run == r.ID })
}

func askedRows(inbox []api.Item, now time.Time) (rows [][]string) {
	for _, i := range inbox {
		left := ""
		if !i.ExpiresAt.IsZero() {
			left = timeLeft(i.ExpiresAt.Sub(now))
		}
		rows = append(rows, []string{"?", i.ID, shorten(i.Title, 100), left, answerHint(i)})
	}
	return rows
}

// section returns a heading with rows, or with the text none if there are no rows.
func (w *liveScreen) section(heading string, rows [][]string, none string) []string {
	out := []string{"", w.paint.Paint(terminal.Strong, heading)}
	if len(rows) == 0 {
		return append(out, w.paint.Paint(terminal.Grey, "  "+none))
	}

	var table bytes.Buffer
	// Do not wrap: the screen cuts long lines, but wrapped lines would hide others.
	err := terminal.Fixed(&table, 0, w.paint.HasColours()).Table(terminal.Table{Rows: harmless(rows), Tone: func(column int, cell string) terminal.Tone {
		if column == 0 {
			return toneOf(cell)
		}
		return terminal.Plain
	}})
	if err != nil {
		return out // writes to a buffer do not fail
	}
	for line := range strings.Lines(table.String()) {
		out = append(out, "  "+strings.TrimSuffix(line, "\n"))
	}
	return out
}
