package web

import (
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
	"rouse/agentdb/transfer"
	"rouse/cmd/internal/api"
)

// maxImport bounds a file that an owner imports, in bytes. It is four times what an agent
// can (OSA-58): an owner knows what he has on his disk, but the file is held in memory.
const maxImport = 256 << 20

// progressEvery is how often long work reports its progress.
const progressEvery = 200 * time.Millisecond

// importFile imports the body of a request and answers with JSON lines.
func (s *databases) importFile(w http.ResponseWriter, r *http.Request) {
	db, release, err := s.storage.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer release()

	q := r.URL.Query()
	ctx := r.Context()
	sendWork(s.responder, w, r, func(progress func(done, of int64)) (api.Imported, error) {
		return db.Import(ctx, byUser, transfer.ImportSpec{
			Table: q.Get("table"), Name: q.Get("name"), Format: q.Get("format"), Mode: q.Get("mode"), KeyColumns: q["key"],
			Source: r.Body, Size: number(r, "size", 0), Limit: maxImport, Progress: progress,
		})
	})
}

// sendWork does work, and sends its progress until it is done. A slow client does not slow it down:
// it gets the latest progress only.
func sendWork[T any](s *responder, w http.ResponseWriter, r *http.Request, work func(progress func(done, of int64)) (T, error)) {
	var progress atomic.Pointer[api.WorkLine[T]]
	over := make(chan api.WorkLine[T], 1)
	go func() {
		result, err := work(func(done, of int64) { progress.Store(&api.WorkLine[T]{Done: done, Of: of}) })
		if err != nil {
			over <- api.WorkLine[T]{Error: s.Failure(r, err)}
			return
		}
		over <- api.WorkLine[T]{Result: &result}
	}()

	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()

	sent := false
	for {
		select {
		case last := <-over:
			if last.Error != nil && !sent {
				// Nothing is out yet, so the status can still say that it failed.
				setRetryAfter(w, last.Error)
				s.write(w, r, last.Status, last.Error)
				return
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

			sent = true
			if out.Encode(line) != nil || flush.Flush() != nil {
				// The client is gone, which cancels the work. Wait for its end: it still uses the
				// body of the request, and the database that the caller releases.
				<-over
				return
			}
		}
	}
}

// exportFile sends the result of a query as a file. It is completed first, because its size, and
// whether it could be made at all, have to be known before the first byte is sent.
func (s *databases) exportFile(w http.ResponseWriter, r *http.Request) {
	var in api.ExportRequest
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
		_ = file.Close() // a failed write would have shown in exported
		_ = os.Remove(file.Name())
	}()

	header, err := json.Marshal(done)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(done.Bytes, 10))
	// Escaped, because headers cannot hold every character of a name.
	w.Header().Set(api.ExportHeader, url.PathEscape(string(header)))
	if _, err := io.Copy(w, file); err != nil && r.Context().Err() == nil {
		s.log.Warn("an export could not be sent", "error", err)
	}
}

// exported writes the file of an export. The caller must remove it.
func (s *databases) exported(r *http.Request, in api.ExportRequest) (done api.Exported, file *os.File, err error) {
	_, err = withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (_ api.Nothing, err error) {
		file, done, err = ExportFile(ctx, db, agentdb.ExportSpec{SQL: in.SQL, Params: in.Params, Format: in.Format, Name: in.Name})
		return api.Nothing{}, err
	})
	return done, file, err
}

// ExportFile writes the answer of a query to a temporary file. The caller must remove the file.
func ExportFile(ctx context.Context, db *agentdb.DB, spec agentdb.ExportSpec) (*os.File, api.Exported, error) {
	file, err := os.CreateTemp("", "rouse-export-")
	if err != nil {
		return nil, api.Exported{}, fmt.Errorf("there is no place to prepare the export: %w", err)
	}
	done, err := db.Export(ctx, spec, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, done, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, done, nil
}
