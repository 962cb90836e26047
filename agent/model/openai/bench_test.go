package openai_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
)

// BenchmarkStream reads an answer of 2,000 chunks. Compare it with "bare": net/http, bufio and
// encoding/json.
func BenchmarkStream(b *testing.B) {
	var body strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&body, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{"content":"word%d "},"finish_reason":null}]}`+"\n\n", i)
	}
	body.WriteString(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	answer := []byte(body.String())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(answer)
	}))
	defer server.Close()

	b.Run("provider", func(b *testing.B) {
		p := provider(b, server.URL, modeltest.Limits{})
		b.SetBytes(int64(len(answer)))
		b.ReportAllocs()
		for b.Loop() {
			words := 0
			for e, err := range p.Stream(b.Context(), model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "hi"}}}) {
				if err != nil {
					b.Fatal(err)
				}
				words += strings.Count(e.Text, " ")
			}
			if words != 2000 {
				b.Fatal(words)
			}
		}
	})

	b.Run("bare", func(b *testing.B) {
		b.SetBytes(int64(len(answer)))
		b.ReportAllocs()
		for b.Loop() {
			response, err := http.Post(server.URL, "application/json", strings.NewReader(`{"messages":[]}`))
			if err != nil {
				b.Fatal(err)
			}
			words := 0
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				data, _ := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
				if len(data) == 0 || data[0] != '{' {
					continue
				}
				var chunk struct {
					Choices []struct {
						Delta struct{ Content string }
					}
				}
				if err := json.Unmarshal(data, &chunk); err != nil {
					b.Fatal(err)
				}
				words += strings.Count(chunk.Choices[0].Delta.Content, " ")
			}
			response.Body.Close()
			if words != 2000 {
				b.Fatal(words)
			}
		}
	})
}
