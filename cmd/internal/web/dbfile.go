package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"rouse/agentdb"
)

// maxImport bounds a file that an owner imports, in bytes. It is four times what an agent
// can (OSA-58): an owner knows what he has on his disk, but the file is held in memory.
const maxImport = 256 << 20

// progressEvery is how often a long import says how far it is.
const progressEvery = 200 * time.Millisecond

// Files of rows, as the API sends them.
type (
	Imported = agentdb.Imported
	Exported = agentdb.Exported
)

// ExportRequest asks for the answer of a query as a file.
type ExportRequest struct {
	SQL    string `json:"sql"`
	Params []any  `json:"params,omitempty"`
	Format string `json:"format,omitempty"`
	Name   string `json:"name,omitempty"` // of the file, whose extension can say the format
}

// exportHeader holds the Exported of a file that is sent as it is.
const exportHeader = "Rouse-Exported"

// workLine is a line of the answer to something that takes a while: how far it is, and last
// what became of it.
type workLine[T any] struct {
	Done   int64 `json:"done,omitempty"` // rows of an import, bytes of a backup
	Of     int64 `json:"of,omitempty"`
	Result *T    `json:"result,omitempty"`
	*Error
}

// importFile imports the body of a request and answers with JSON lines.
func (s *server) importFile(w http.ResponseWriter, r *http.Request) {
	db, release, err := s.engine.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer release()
	q := r.URL.Query()
	size, err := strconv.ParseInt(q.Get("size"), 10, 64)
	if err != nil || size < 0 {
		size = 0 // it is a hint
	}
	var progress atomic.Pointer[workLine[Imported]]
	spec := agentdb.ImportSpec{
		Table: q.Get("table"), Name: q.Get("name"), Format: q.Get("format"), Mode: q.Get("mode"), KeyColumns: q["key"],
		Source: r.Body, Size: size, Limit: maxImport,
		Progress: func(done, of int64) { progress.Store(&workLine[Imported]{Done: done, Of: of}) },
	}
	ctx := r.Context()
	sendWork(s, w, r, &progress, func() (Imported, error) { return db.Import(ctx, owner, spec) })
}

// sendWork does something and sends how far it is until it is over. The work does not wait
// for a reader that is slow.
func sendWork[T any](s *server, w http.ResponseWriter, r *http.Request, progress *atomic.Pointer[workLine[T]], work func() (T, error)) {
	over := make(chan workLine[T], 1)
	go func() {
		result, err := work()
		if err != nil {
			over <- workLine[T]{Error: s.failure(r, err)}
			return
		}
		over <- workLine[T]{Result: &result}
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	begun := false
	for {
		select {
		case last := <-over:
			if last.Error != nil && !begun {
				w.WriteHeader(last.Status)
			}
			if err := out.Encode(last); err != nil {
				s.log.Warn("what became of a request could not be sent", "path", r.URL.Path, "error", err)
			}
			return
		case <-tick.C:
			line := progress.Swap(nil)
			if line == nil {
				continue
			}
			begun = true
			if out.Encode(line) != nil || flush.Flush() != nil {
				<-over // the reader is gone, which ends the work
				return
			}
		}
	}
}

// exportFile sends the answer of a query as a file, once it is complete.
func (s *server) exportFile(w http.ResponseWriter, r *http.Request) {
	var in ExportRequest
	if err := read(r, &in); err != nil {
		s.fail(w, r, err)
		return
	}
	done, file, err := s.exported(r, in)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer func() {
		_ = file.Close() // it was only read since it was written
		_ = os.Remove(file.Name())
	}()
	header, err := json.Marshal(done)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(done.Bytes, 10))
	w.Header().Set(exportHeader, url.PathEscape(string(header)))
	if _, err := io.Copy(w, file); err != nil && r.Context().Err() == nil {
		s.log.Warn("an export could not be sent", "error", err)
	}
}

// exported writes the file; the caller removes it.
func (s *server) exported(r *http.Request, in ExportRequest) (done Exported, file *os.File, err error) {
	db, release, err := s.engine.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return done, nil, err
	}
	defer release()
	if file, err = os.CreateTemp("", "rouse-export-"); err != nil {
		return done, nil, fmt.Errorf("there is no place to prepare the export: %w", err)
	}
	done, err = db.Export(r.Context(), agentdb.ExportSpec{SQL: in.SQL, Params: in.Params, Format: in.Format, Name: in.Name}, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return done, nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return done, file, nil
}

// Import sends a file for import and hears how many of its rows are done.
func (c *Client) Import(ctx context.Context, path string, query url.Values, body io.Reader, progress func(done, of int64)) (Imported, error) {
	resp, err := c.request(ctx, http.MethodPost, path, query, body, "application/octet-stream")
	if err != nil {
		return Imported{}, err
	}
	defer resp.Body.Close()
	return readWork[Imported](resp, path, progress, "the daemon ended before it said what became of the import; look with rouse db AGENT schema whether its rows are there, and repeat it if not")
}

// readWork hears how far something is, and what became of it; the caller closes the answer.
// lost is what to say when the
// answer breaks off.
func readWork[T any](resp *http.Response, path string, progress func(done, of int64), lost string) (result T, err error) {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var line workLine[T]
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return result, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
		}
		switch {
		case line.Error != nil:
			return result, line.Error
		case line.Result != nil:
			return *line.Result, nil
		}
		progress(line.Done, line.Of)
	}
	return result, errors.Join(errors.New(lost), lines.Err())
}

// Export fetches the answer of a query as a file.
func (c *Client) Export(ctx context.Context, path string, in ExportRequest, to io.Writer) (done Exported, err error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, in)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	header, err := url.PathUnescape(resp.Header.Get(exportHeader))
	if err == nil {
		err = json.Unmarshal([]byte(header), &done)
	}
	if err != nil {
		return done, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
	}
	n, err := io.Copy(to, resp.Body)
	if err == nil && n != done.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return done, fmt.Errorf("the export could not be written: %w", err)
	}
	return done, nil
}
