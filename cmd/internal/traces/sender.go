package traces

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// answers is the timeout of one request.
	answers = 10 * time.Second
	// firstPause and longestPause limit the delay between retries, unless the receiver requests
	// another delay.
	firstPause, longestPause = time.Second, 10 * time.Second
	// insists is the number of retries for one batch. They take about a minute in all.
	insists = 8
	// maxAnswer is the maximum number of bytes read from a response.
	maxAnswer = 64 << 10
)

// sender sends spans with OTLP over HTTP. It replaces OpenTelemetry's exporter, which would add
// gRPC to the program.
type sender struct {
	url     string
	headers map[string]string
	client  *retryablehttp.Client
}

func newSender(url string, headers map[string]string) *sender {
	c := retryablehttp.NewClient()
	// A redirect would send the headers to another server.
	c.HTTPClient = &http.Client{Timeout: answers, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.Logger = nil // the caller logs errors
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = insists, firstPause, longestPause
	c.CheckRetry, c.Backoff, c.ErrorHandler = again, pause, retryablehttp.PassthroughErrorHandler
	return &sender{url, headers, c}
}

// upload sends spans. Its errors do not contain the response body, which could repeat the request.
func (s *sender) upload(ctx context.Context, spans *otlp.ResourceSpans) error {
	// TracesData has the same wire format as ExportTraceServiceRequest.
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: []*otlp.ResourceSpans{spans}})
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(body); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}

	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, &zipped)
	if err != nil {
		return err
	}
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")

	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}

	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the answer of the receiver: %w", err)
	}
	if n := rejected(answer); n > 0 && resp.Header.Get("Content-Type") == "application/x-protobuf" {
		return fmt.Errorf("the receiver did not take %d of the spans", n)
	}
	return nil
}

// again reports whether a request should be retried: after the statuses named by the protocol, and
// after a timeout.
func again(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var failed *url.Error
		return errors.As(err, &failed) && failed.Timeout(), nil
	}

	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}

// pause returns the delay before a retry. It honors the receiver's Retry-After header, up to one
// minute.
func pause(least, most time.Duration, tries int, resp *http.Response) time.Duration {
	return min(retryablehttp.DefaultBackoff(least, most, tries, resp), time.Minute)
}

// rejected returns partial_success.rejected_spans of an ExportTraceServiceResponse.
func rejected(answer []byte) uint64 {
	partial, _ := protowire.ConsumeBytes(field1(answer, protowire.BytesType))
	n, _ := protowire.ConsumeVarint(field1(partial, protowire.VarintType))
	return n
}

// field1 returns a message from the value of its field 1. It returns nil if the message is not
// valid or has no such field of the given type.
func field1(message []byte, of protowire.Type) []byte {
	for len(message) > 0 {
		number, found, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		if message = message[n:]; number == 1 && found == of {
			return message
		}

		if n = protowire.ConsumeFieldValue(number, found, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
