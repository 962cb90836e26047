package bench

import (
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
)

func benchWeb(ctx context.Context, o Options) (_ []Figure, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	b := &webBench{filledHome: filledHome{self: self, dir: o.Home, runs: o.Runs, progress: o.Progress}, asks: 60 * o.Passes, streams: 100, idle: o.Idle}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "rouse-bench-web-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	return b.measure(ctx)
}

// webBench asks a daemon whose home holds many runs for its pages and listings, as a browser that is logged in does.
type webBench struct {
	filledHome
	asks    int // how often each page is asked for
	streams int
	idle    time.Duration

	base string // the address of the pages
	http *http.Client
	bare *sql.DB // the ledger, read beside the daemon
}

func (b *webBench) measure(ctx context.Context) (out []Figure, err error) {
	if err := b.fill(ctx); err != nil {
		return nil, err
	}

	b.report("opening the home")
	process, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Process.Signal(os.Interrupt), process.Wait()) }()

	if b.bare, err = sql.Open("sqlite", b.ledger()+"?_pragma=query_only(1)"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.bare.Close()) }()
	if err := b.login(ctx); err != nil {
		return nil, err
	}

	for _, part := range []func(context.Context) ([]Figure, error){b.firstPage, b.pages, b.listings, b.watched, b.quiet} {
		figures, err := part(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, figures...)
	}
	return out, nil
}

// login follows a login link, as the browser of the owner does.
func (b *webBench) login(ctx context.Context) error {
	client, err := api.Dial(ctx, daemon.SocketPath(b.home()))
	if err != nil {
		return err
	}
	defer client.Close()

	var link api.Login
	if err := client.Post(ctx, "/v1/access/logins", api.LoginRequest{}, &link); err != nil {
		return err
	}
	address, err := url.Parse(link.URL)
	if err != nil {
		return err
	}

	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	// Compression is asked for, and undone, where the bytes are counted.
	b.http = &http.Client{Jar: jar, Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: b.streams}}
	b.base = address.Scheme + "://" + address.Host
	_, _, err = b.get(ctx, strings.TrimPrefix(link.URL, b.base))
	return err
}

// get asks for a page, and returns it with how many bytes of it came over the connection.
func (b *webBench) get(ctx context.Context, path string) (body string, transferred int, err error) {
	return b.fetch(ctx, b.base+path)
}

func (b *webBench) fetch(ctx context.Context, address string) (body string, transferred int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", 0, err
	}
	request.Header.Set("Accept-Encoding", "gzip")
	answer, err := b.http.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()

	packed, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", 0, err
	}
	plain := packed
	if answer.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(strings.NewReader(string(packed)))
		if err != nil {
			return "", 0, err
		}
		if plain, err = io.ReadAll(unpacked); err != nil {
			return "", 0, err
		}
	}

	if answer.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("%s answers %s: %.200s", address, answer.Status, plain)
	}
	return string(plain), len(packed), nil
}

// assetLink finds what a page has fetched besides.
var assetLink = regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`)

// firstPage is what a browser transfers that has nothing of the pages yet.
func (b *webBench) firstPage(ctx context.Context) ([]Figure, error) {
	page, bytes, err := b.get(ctx, "/")
	if err != nil {
		return nil, err
	}

	for _, link := range assetLink.FindAllStringSubmatch(page, -1) {
		_, more, err := b.get(ctx, link[1])
		if err != nil {
			return nil, err
		}
		bytes += more
	}

	kB := float64(bytes) / 1000
	return []Figure{{"first page with its assets, compressed", kB, 0, "kB", 0, "≤ 60 kB", kB <= 60}}, nil
}

// Bounds of the goals, in milliseconds.
const (
	maxPage    = 50
	maxListing = 5
	maxTimes   = 3 // as long as its bare queries
)

// pages alternates each page with its bare queries, which a bare net/http server answers with as JSON.
func (b *webBench) pages(ctx context.Context) (out []Figure, err error) {
	for _, p := range webPages(b.runs) {
		b.report("page %s", p.path)
		page, bare, err := b.beside(ctx, p)
		if err != nil {
			return nil, err
		}

		p99, ratio := percentile(page, 99), median(ratios(page, bare))
		out = append(out,
			Figure{"page " + p.name + ", p99", p99, 0, "ms", 0, fmt.Sprintf("≤ %d ms", maxPage), p99 <= maxPage},
			Figure{"page " + p.name + ", median", median(page), median(bare), "ms", ratio, fmt.Sprintf("≤ %d× its queries", maxTimes), ratio <= maxTimes})
	}
	return out, nil
}

// beside asks for a page and for its bare queries in turn, and returns how long each took, in milliseconds.
func (b *webBench) beside(ctx context.Context, p webPage) (page, bare []float64, err error) {
	floor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := json.NewEncoder(w)
		for _, q := range p.queries {
			if err := q.run(r.Context(), b.bare, out); err != nil {
				http.Error(w, q.sql+": "+err.Error(), http.StatusInternalServerError)
				return
			}
		}
	}))
	defer floor.Close()

	for i := range b.asks + 1 {
		of, err := b.time(ctx, b.base+p.path)
		if err != nil {
			return nil, nil, err
		}
		under, err := b.time(ctx, floor.URL)
		if err != nil {
			return nil, nil, err
		}
		if i > 0 { // the first warms what is to be warm
			page, bare = append(page, of), append(bare, under)
		}
	}
	return page, bare, nil
}

// time is how long an answer takes, in milliseconds.
func (b *webBench) time(ctx context.Context, address string) (float64, error) {
	begin := time.Now()
	_, _, err := b.fetch(ctx, address)
	return milliseconds(time.Since(begin)), err
}

// listings are the pages of the API.
func (b *webBench) listings(ctx context.Context) (out []Figure, err error) {
	for _, path := range webListings(b.runs) {
		b.report("GET %s", path)
		var took []float64
		for i := range b.asks + 1 {
			one, err := b.time(ctx, b.base+path)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				took = append(took, one)
			}
		}

		p99 := percentile(took, 99)
		out = append(out, Figure{"GET " + path + ", p99", p99, 0, "ms", 0, fmt.Sprintf("≤ %d ms", maxListing), p99 <= maxListing})
	}
	return out, nil
}

// quiet is what the daemon does while a page is open and nothing happens.
func (b *webBench) quiet(ctx context.Context) (_ []Figure, err error) {
	open, err := b.open(ctx, "/live", "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, open.Close()) }()

	// What the measurement before left to collect is not the page's.
	select {
	case <-time.After(b.idle / 5):
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	b.report("an idle daemon with a page open, for %s", b.idle)
	var s sample
	if err := s.read(b.pid, b.idle); err != nil {
		return nil, err
	}
	return []Figure{{"idle CPU with a page open", s.cpu, 0, "ms/s", 0, "≤ 1 ms/s", s.cpu <= 1}}, nil
}

// webPage is a page with what it has to ask the ledger for.
type webPage struct {
	name, path string
	queries    []webQuery
}

// webQuery is a bare query.
type webQuery struct {
	sql  string
	args []any
}

// run writes the rows as JSON.
func (q webQuery) run(ctx context.Context, db *sql.DB, out *json.Encoder) error {
	rows, err := db.QueryContext(ctx, q.sql, q.args...)
	if err != nil {
		return err
	}
	defer rows.Close()

	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(any)
	}
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return err
		}
		if err := out.Encode(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Bare queries that several pages make.
var (
	lastOfEachJob = query(`select r.* from jobs j join runs r on r.id = (select max(id) from runs where job = j.name)`)
	openItems     = query(`select * from inbox where state = 'open'`)
	unfinished    = query(`select * from runs where state <> 'finished'`)
	pausesNow     = query(`select * from pauses where ended_at = 0`)
)

func query(sql string, args ...any) webQuery { return webQuery{sql, args} }

// webPages are the pages of a home, with a run that failed and the busy job among them.
func webPages(runs int) []webPage {
	failed := runs / 50 * 50
	busy, agent, day := busyJob, homeAgent(0), time.Now().UTC().Truncate(24*time.Hour).UnixMilli()
	ofRun := []webQuery{
		query(`select * from runs where id = ?`, failed), query(`select * from attempts where run = ?`, failed), query(`select * from steps where run = ?`, failed),
		query(`select * from calls where run = ?`, failed), query(`select * from events where run = ? and run <> 0 order by seq`, failed), query(`select * from inbox where run = ?`, failed),
		query(`select * from artifacts where run = ?`, failed), query(`select * from file_ops where run = ?`, failed), query(`select * from outbox where run = ?`, failed),
	}

	return []webPage{
		{"Today", "/", []webQuery{
			lastOfEachJob, openItems, unfinished, pausesNow,
			query(`select * from runs where id > (select max(id) from runs) - 20000 and queued_at >= ? order by id desc limit 500`, day),
			query(`select * from occurrences where nominal >= ? and decision <> 'run' order by nominal desc limit 500`, day),
			query(`select * from spending where day = date()`),
			query(`select r.* from jobs j, runs r where r.id in (select id from runs where job = j.name and state = 'finished' order by id desc limit 20)`),
		}},
		{"Inbox", "/inbox", []webQuery{openItems, query(`select * from runs order by id desc limit 10`)}},
		{"Runs", "/runs", []webQuery{query(`select * from runs order by id desc limit 50`)}},
		{"Runs of a job that failed", "/runs?job=" + busy + "&outcome=error", []webQuery{query(`select * from runs where job = ? and outcome = 'error' order by id desc limit 50`, busy)}},
		{"Runs in the middle", fmt.Sprintf("/runs?before=%d", runs/2+1), []webQuery{query(`select * from runs where id <= ? order by id desc limit 50`, runs/2)}},
		{"Run", fmt.Sprintf("/runs/%d", failed), ofRun},
		{"Jobs", "/jobs", []webQuery{lastOfEachJob, pausesNow}},
		{"Job", "/jobs/" + busy, []webQuery{
			lastOfEachJob, pausesNow, query(`select * from runs where job = ? order by id desc limit 90`, busy),
			query(`select o.*, r.* from occurrences o left join runs r on r.id = o.run where o.job = ? order by o.nominal desc limit 90`, busy),
		}},
		{"Agents", "/agents", []webQuery{lastOfEachJob, pausesNow}},
		{"Agent", "/agents/" + agent, []webQuery{lastOfEachJob, pausesNow}},
		{"Activity", "/agents/" + agent + "/activity", []webQuery{lastOfEachJob, pausesNow, query(`select * from runs where agent = ? order by id desc limit 50`, agent)}},
		{"Health", "/health", []webQuery{lastOfEachJob, query(`select * from outbox where state in ('pending', 'failed') order by id desc limit 50`), query(`pragma page_count`)}},
	}
}

// webListings are listings of the API, and details of what they list.
func webListings(runs int) []string {
	return []string{
		"/v1/status", "/v1/jobs", "/v1/agents", "/v1/next?n=10", "/v1/budget", "/v1/inbox", "/v1/inbox/closed", "/v1/workspaces", "/v1/pauses",
		"/v1/runs?n=50", "/v1/runs?n=50&job=" + busyJob, "/v1/runs?n=50&job=" + busyJob + "&outcome=error", "/v1/runs?n=50&agent=" + homeAgent(1), "/v1/runs?n=50&outcome=timeout",
		fmt.Sprintf("/v1/runs?n=50&before=%d", runs/2+1), fmt.Sprintf("/v1/runs/%d", runs/50*50), "/v1/why?n=50&job=" + busyJob,
	}
}
