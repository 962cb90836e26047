// Package condition checks the conditions of a job before a run begins (when), and its expectations
// after the run has ended (expect).
package condition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/plan/vars"
	"rouse/agent/programs"
	"rouse/agent/runlog"
	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/internal/dial"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/text"
)

// Limits of the recorded name and value of a condition, in characters.
const (
	maxName  = 80
	maxValue = 500
)

// defaultTimeout is the timeout of conditions that do not set one.
const defaultTimeout = 10 * time.Second

// eventKind and the JSON keys of happened are old names. They must stay readable in existing
// ledgers.
const eventKind = "gate"

type happened struct {
	Gate  string `json:"gate"`
	Value string `json:"value,omitempty"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"` // reason why the condition could not be checked
	Left  int    `json:"left"`            // number of conditions after this one; 0 for the last
}

// Env holds the stores and services with which the conditions and expectations of an attempt are
// checked.
type Env struct {
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Programs  *programs.Hosts
	Log       *slog.Logger
	Attempt   *plan.Attempt
}

type checker struct {
	Env
	now time.Time // the same for all conditions
}

// Check checks the conditions of a run. It returns an early end if a condition is false or cannot
// be checked.
func Check(ctx context.Context, env Env) error {
	t := env.Attempt
	if len(t.Job.When) == 0 || !applies(t.Run, t.Detail) {
		return nil
	}

	if t.Try.Number > 1 {
		if open, err := heldBefore(ctx, env.Ledger, t.Run.ID); open || err != nil {
			return err
		}
	}

	q := checker{Env: env, now: time.Now()}
	for i, g := range t.Job.When {
		name := q.describe(g)
		value, ok, err := q.check(ctx, g)
		if ctx.Err() != nil { // the run must end, whatever the result is
			return context.Cause(ctx)
		}

		e := happened{Gate: name, Value: q.display(value, maxValue), OK: ok != g.Not, Left: len(t.Job.When) - 1 - i}
		if err != nil {
			e.Value, e.OK, e.Error = "", false, q.display(err.Error(), maxValue)
		}
		// Record the result before acting on it: a later attempt reads it to learn that the
		// conditions held.
		if err := runlog.AppendEvent(ctx, env.Ledger, t.Run, eventKind, e); err != nil {
			return err
		}

		switch {
		case e.Error != "":
			return plan.EndEarly(domain.OutcomeError, "gate: %s could not be checked (%s): %s", name, g.Where, e.Error)
		case !e.OK:
			return plan.EndEarly(domain.OutcomeSkipped, "gate: %s gave %s (%s)", name, e.Value, g.Where)
		}
	}

	return nil
}

// applies reports whether the conditions apply to a run. They do not if the run was started by
// files or a changed folder, which a false condition would lose.
func applies(run ledger.Run, d ledger.TriggerDetail) bool {
	return d.File == nil && len(d.Files) == 0 && d.Folder == "" && slices.Contains([]domain.Trigger{domain.TriggerSchedule, domain.TriggerBackfill, domain.TriggerManual, domain.TriggerAPI, domain.TriggerWebhook, domain.TriggerAfter}, run.Trigger)
}

// heldBefore reports whether the conditions held in an earlier attempt. That attempt may have made
// them false.
func heldBefore(ctx context.Context, l *ledger.Ledger, run int64) (bool, error) {
	events, err := l.Events.List(ctx, event.Filter{Run: run, Limit: -1})
	for _, e := range events {
		switch e.Kind {
		case "step.started":
			return true, nil
		case eventKind:
			var g happened
			if err := json.Unmarshal(e.Data, &g); err != nil {
				return false, fmt.Errorf("the record of a condition of run %d is damaged: %w", run, err)
			}
			// The daemon may have stopped between two conditions, so only the last condition
			// counts.
			if g.OK && g.Left == 0 {
				return true, nil
			}
		}
	}
	return false, err
}

// check returns the value of a condition, and whether the value counts as true. It returns an error
// if the condition cannot be checked.
func (q checker) check(ctx context.Context, g plan.Condition) (value string, ok bool, err error) {
	if g.Timeout <= 0 {
		g.Timeout = defaultTimeout
	}

	bounded, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()

	switch {
	case g.SQL != "":
		return q.checkSQL(bounded, g)
	case len(g.Command) > 0:
		return q.checkCommand(bounded, g)
	case g.HTTP != "":
		return q.checkHTTP(bounded, g)
	case g.That != "":
		return q.checkExpression(bounded, g)
	}

	return checkFile(bounded, q.Attempt.Plan.Boundary, g)
}

func (q checker) describe(g plan.Condition) string {
	kind, text := "file", g.File
	switch {
	case g.SQL != "":
		kind, text = "sql", g.SQL
	case len(g.Command) > 0:
		kind, text = "command", strings.Join(g.Command, " ")
	case g.That != "":
		kind, text = "that", g.That
	case g.HTTP != "":
		// Redact before shortening: a shortened secret would not be recognized.
		kind, text = "http", displayURL(q.Attempt.Redactor().Replace(g.HTTP))
	}

	name := fmt.Sprintf(`%s "%s"`, kind, q.display(text, maxName))
	if g.Not {
		return "not " + name
	}

	return name
}

// display returns a text as one redacted line of limited length. Cleaning a text can split or
// complete a secret, so secrets are redacted before and after it.
func (q checker) display(said string, most int) string {
	return text.Truncate(q.Attempt.Redactor().Replace(text.Collapse(text.OneLine(q.Attempt.Redactor().Replace(said)))), most)
}

// checkExpression evaluates an expression with the variables of the run's templates. Its value must
// be true or false.
func (q checker) checkExpression(ctx context.Context, g plan.Condition) (value string, ok bool, err error) {
	last, err := vars.LastTimes(ctx, q.Ledger, q.Attempt.Run)
	if err != nil {
		return "", false, err
	}
	data := vars.Of(q.Attempt.Run, q.Attempt.Try.Number, q.Attempt.Detail, last.SuccessStart, last.End)
	if q.Attempt.Detail.Webhook != nil {
		body, err := q.Ledger.Runs.DeliveryBody(ctx, q.Attempt.Run.ID)
		if err != nil {
			return "", false, err
		}
		vars.AddBody(data, body)
	}

	v, err := playbook.ExpandValue("that", "= "+g.That, data)
	if err != nil {
		return "", false, err
	}
	ok, isBool := v.(bool)
	if !isBool {
		return "", false, fmt.Errorf("it gives %T, which is neither true nor false", v)
	}
	return fmt.Sprint(ok), ok, nil
}

func (q checker) checkSQL(ctx context.Context, g plan.Condition) (value string, ok bool, err error) {
	named := map[string]any{"now": q.now}
	if strings.Contains(g.SQL, "last_") { // otherwise the ledger is not queried
		last, err := vars.LastTimes(ctx, q.Ledger, q.Attempt.Run)
		if err != nil {
			return "", false, err
		}
		named["last_success"], named["last_run"] = last.SuccessEnd, last.End // rows that the last run wrote are not new
	}

	db, release, err := q.Databases.Get(ctx, q.Attempt.Agent.Name)
	if err != nil {
		return "", false, explainTimeout(ctx, g, err)
	}
	defer release()

	rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: g.SQL, Named: named, AllowExtra: true, Limit: 2})
	if err != nil {
		return "", false, explainTimeout(ctx, g, q.explainSQLError(err))
	}

	switch {
	case len(rows.Columns) > 1:
		return "", false, fmt.Errorf("it gives %d columns, and a condition takes one value; write for example: select count(*) > 0 from …", len(rows.Columns))
	case len(rows.Rows) > 1:
		return "", false, errors.New("it gives more than one row, and a condition takes one value; write for example: select count(*) > 0 from …")
	case len(rows.Rows) == 0:
		return "no row", false, nil
	}

	seen := rows.Rows[0][rows.Columns[0]]
	switch v := seen.(type) {
	case nil:
		value = "NULL"
	case string:
		value = strconv.Quote(v)
	default:
		value = fmt.Sprint(v)
	}

	return value, truth(seen), nil
}

func (q checker) explainSQLError(err error) error {
	var bad *agentdb.Error
	if !errors.As(err, &bad) {
		return err
	}
	if bad.Field == "params" {
		return fmt.Errorf("%w; a condition has :last_success, :last_run and :now", err)
	}

	if rest, ok := strings.CutPrefix(bad.Message, "no such table: "); ok {
		table, _, _ := strings.Cut(rest, ";")
		return fmt.Errorf("%w; create it (rouse call %s db_create_table …), or put a condition before this one that is false without it: sql: \"select count(*) from sqlite_schema where name = '%s'\"",
			err, q.Attempt.Agent.Name, strings.ReplaceAll(table, "'", "''"))
	}

	return err
}

func explainTimeout(ctx context.Context, g plan.Condition, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("it took longer than %s and was stopped; make it quicker, or give it a longer timeout", g.Timeout)
	}
	return err
}

const maxRedirects = 10

// checkHTTP requests a URL and checks only the status. The condition is false if the server cannot
// be reached.
func (q checker) checkHTTP(ctx context.Context, g plan.Condition) (value string, ok bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.HTTP, nil)
	if err != nil {
		return "", false, errors.New("its URL is broken") // the original error contains the URL with its secrets
	}

	req.Header.Set("User-Agent", "rouse")
	client := http.Client{CheckRedirect: checkRedirect, Transport: dial.New(dial.Options{Own: []string{g.HTTP}, Proxy: true, HTTP: true})}
	resp, err := client.Do(req)
	if err != nil {
		return q.Attempt.Plan.RedactorWith(urlSecrets(g.HTTP)).Replace(networkError(err, g)), false, nil
	}

	resp.Body.Close() // the body is not read, because it may be endless
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)), resp.StatusCode/100 == 2, nil
}

// checkRedirect allows only http and https. It removes the Referer header, so that one server does
// not learn the query that was sent to another.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fmt.Errorf("a redirect to %s:, which is refused", req.URL.Scheme)
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}

	req.Header.Del("Referer")
	return nil
}

func networkError(err error, g plan.Condition) string {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}

	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", g.Timeout)
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &errno):
		return errno.Error()
	}

	return err.Error()
}

// displayURL returns a URL without possible secrets: the user info, the query values and the
// fragment.
func displayURL(text string) string {
	text, _, _ = strings.Cut(text, "#")
	text, query, _ := strings.Cut(text, "?")
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "", text
	}

	host, path, inside := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = "…" + host[at:]
	}

	out := host
	if ok {
		out = scheme + "://" + host
	}

	if inside {
		out += "/" + path
	}

	for i, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' }) {
		key, _, isPair := strings.Cut(pair, "=")
		if !isPair {
			key = "" // a word without a value may be a secret
		} else {
			key += "="
		}
		out += string("?&"[min(i, 1)]) + key + "…"
	}

	return out
}

// urlSecrets returns the parts of a URL that must be redacted from errors.
func urlSecrets(text string) []string {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}

	password, _ := u.User.Password()
	out := []string{u.User.Username(), password, u.RawQuery}
	for _, values := range u.Query() {
		for _, v := range values {
			out = append(out, v, url.QueryEscape(v))
		}
	}

	return out
}
