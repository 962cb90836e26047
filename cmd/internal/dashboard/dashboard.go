package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/klauspost/compress/gzhttp"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/reload"
	"rouse/cmd/internal/status"
	"rouse/cmd/internal/web"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// Options holds the settings of the pages. All fields except Version are required.
type Options struct {
	API     web.Options // the ledger and the backend of the API
	Version string
}

// site serves all pages.
type site struct {
	ledger   *ledger.Ledger
	answers  *web.Server
	control  *control.Service
	why      *why.Explainer
	doctor   *doctor.Checker
	status   *status.Reporter
	reloader *reload.Reloader
	version  string
	log      *slog.Logger
	assets   *assets

	stopping <-chan struct{} // closed when the server stops
}

// New returns a handler for the pages, to be mounted at /. It does not check access.
func New(o Options) (http.Handler, error) {
	answers, err := web.NewServer(o.API)
	if err != nil {
		return nil, err
	}
	files, err := newAssets()
	if err != nil {
		return nil, err
	}
	if o.API.Logger == nil {
		o.API.Logger = slog.New(slog.DiscardHandler)
	}

	s := &site{ledger: o.API.Ledger, answers: answers, control: o.API.Control, why: o.API.Why, doctor: o.API.Doctor, status: o.API.Status, reloader: o.API.Reloader, stopping: o.API.Stopping,
		version: o.Version, log: o.API.Logger, assets: files}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(0), gzhttp.ContentTypes([]string{"text/html", "text/css", "text/javascript", "image/svg+xml"}))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, routes := range []func(*http.ServeMux){s.todayRoutes, s.inboxRoutes, s.runsRoutes, s.runRoutes, s.jobRoutes, s.agentRoutes, s.dataRoutes, s.workspaceRoutes, s.skillRoutes, s.healthRoutes, s.incidentRoutes} {
		routes(mux)
	}
	mux.HandleFunc("GET /assets/{file}", s.assets.serve)
	mux.Handle("/", s.show(func(r *http.Request, _ page) (templ.Component, error) {
		return nil, &api.Error{Status: http.StatusNotFound, Message: "there is no page " + r.URL.Path}
	}))

	all := http.NewServeMux()
	all.HandleFunc("GET /live", s.live) // an event stream, which must not be compressed
	all.Handle("/", compress(mux))
	return all, nil
}

// checked rejects requests with IDs in the path that are not numbers.
func (s *site) checked(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"id", "artifact"} {
			if text := r.PathValue(name); text != "" && pathID(r, name) < 1 {
				s.fail(w, r, &api.Error{Status: http.StatusNotFound, Message: strconv.Quote(text) + " is not a number, as ids are"})
				return
			}
		}
		next(w, r)
	})
}

// pathID returns an ID in the path, or 0 if it is not a number.
func pathID(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.PathValue(name), 10, 64)
	return n
}

// show returns a handler that renders a page.
func (s *site) show(make func(*http.Request, page) (templ.Component, error)) http.Handler {
	return s.checked(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.newPage(r)
		var body templ.Component
		if err == nil {
			body, err = make(r, p)
		}
		switch {
		case r.Context().Err() != nil: // the client has disconnected
		case err != nil:
			s.fail(w, r, err)
		default:
			s.write(w, r, http.StatusOK, body)
		}
	})
}

// text returns a handler that serves untrusted text as plain text, which browsers do not interpret.
func (s *site) text(read func(*http.Request) (string, error)) http.Handler {
	return s.checked(func(w http.ResponseWriter, r *http.Request) {
		content, err := read(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte(text.Lines(content))) // fails only if the client has disconnected
	})
}

// maxForm is the maximum size of a posted form, in bytes. File uploads have their own limit.
const maxForm = 1 << 20

// do returns a handler that performs a form's action and redirects to the page the action returns.
func (s *site) do(do func(*http.Request) (to string, err error)) http.Handler {
	return s.checked(func(w http.ResponseWriter, r *http.Request) {
		err := parseForm(w, r)
		to := ""
		if err == nil {
			to, err = do(r)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	})
}

// parseForm parses the fields of a form.
func parseForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return badRequest("what was sent was not understood: %v", err)
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf(format, args...)}
}

// fail shows a page with the error and a remedy.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, _ := s.newPage(r) // if the inbox cannot be read, the page lacks its size
	failure := s.answers.Failure(r, err)
	p.Title = http.StatusText(failure.Status)
	s.write(w, r, failure.Status, failurePage(p, failure, back(r)))
}

// write renders a page completely before sending it, so that a failure does not leave half a page.
func (s *site) write(w http.ResponseWriter, r *http.Request, status int, body templ.Component) {
	var page bytes.Buffer
	if err := body.Render(context.WithoutCancel(r.Context()), &page); err != nil {
		s.log.Error("a page could not be made", "path", r.URL.Path, "error", err)
		http.Error(w, "this page could not be made; the log of rouse says why", http.StatusInternalServerError)
		return
	}

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	// Do not cache: an answer or undo a moment ago changes the page.
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if _, err := w.Write(page.Bytes()); err != nil && r.Context().Err() == nil {
		s.log.Warn("a page could not be sent", "path", r.URL.Path, "error", err)
	}
}

// back returns the page a form was on. It returns only paths of this site and ignores other
// addresses.
func back(r *http.Request) string {
	for _, text := range []string{r.PostFormValue("back"), r.Referer()} {
		u, err := url.Parse(text)
		// Browsers treat /\host like //host, as another host.
		if err == nil && strings.HasPrefix(u.Path, "/") && !strings.HasPrefix(u.Path, "//") && !strings.Contains(u.Path, `\`) && (u.Host == "" || u.Host == r.Host) {
			return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
		}
	}
	return "/"
}

// link returns the address of a page with escaped path elements. query holds pairs of parameter
// names and values.
func link(parts []string, query ...string) string {
	var out strings.Builder
	for _, part := range parts {
		out.WriteString("/" + url.PathEscape(part))
	}

	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	if len(q) > 0 {
		out.WriteString("?" + q.Encode())
	}
	return out.String()
}

func jobPath(name string) string   { return link([]string{"jobs", name}) }
func agentPath(name string) string { return link([]string{"agents", name}) }
func runPath(id string) string     { return link([]string{"runs", id}) }

// runsPath returns the address of the list of runs with a filter, given in pairs.
func runsPath(query ...string) string { return link([]string{"runs"}, query...) }

// before returns the ID from which a list continues, or 0 for its start.
func before(r *http.Request, of string) (int64, error) {
	text := r.URL.Query().Get("before")
	if text == "" {
		return 0, nil
	}

	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, badRequest("before is the number of %s, and %q is none", of, text)
	}
	return n, nil
}

// betweenSignals is the minimum time between two signals, because each makes the browser reload the
// page.
const betweenSignals = 500 * time.Millisecond

// live sends a signal to an open page whenever the ledger changes. The signal has no content: the
// page's script fetches the page again.
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	// Send one signal at once: something may have happened since the page was rendered.
	for {
		changed := s.ledger.Changed()
		if _, err := io.WriteString(w, "data: changed\n\n"); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}

		select {
		case <-time.After(betweenSignals):
		case <-s.stopping:
			return
		case <-r.Context().Done():
			return
		}
		select {
		case <-changed:
		case <-s.stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}
