package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fakeAgentKey is the environment variable with the behavior of this test binary as an agent
// program. If it is unset, the binary runs the tests.
const fakeAgentKey = "ROUSE_TEST_AGENT"

// fakeAgent prints the output of Claude Code and behaves as requested.
func fakeAgent(does string) {
	task, _ := io.ReadAll(os.Stdin)
	say := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\n", raw)
	}
	type m = map[string]any
	answer := func(id, text string, in, out int) {
		say(m{"type": "assistant", "message": m{"id": id, "model": "fake-1", "content": []m{{"type": "text", "text": text}}, "usage": m{"input_tokens": in, "output_tokens": out}}})
	}
	result := func(text string) {
		say(m{"type": "result", "subtype": "success", "is_error": false, "result": text, "total_cost_usd": 0.25, "num_turns": 1, "usage": m{"input_tokens": 100, "output_tokens": 10}})
	}
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			_ = os.WriteFile(path, []byte(text), 0o644)
		}
	}

	if does != "tells tokens" && does != "limited in text" {
		say(m{"type": "system", "subtype": "init", "session_id": "s", "model": "fake-1"})
	}
	switch does {
	case "works":
		say(m{"type": "assistant", "message": m{"id": "1", "model": "fake-1", "content": []m{{"type": "text", "text": "I write."}, {"type": "tool_use", "id": "t", "name": "Write", "input": m{"path": "new/deep.txt"}}},
			"usage": m{"input_tokens": 90, "output_tokens": 9}}})
		write("old.txt", "changed")
		write("new/deep.txt", "new")
		write("big.bin", strings.Repeat("y", 6<<20))
		write("binary.dat", "\x00\xff\x01")
		_ = os.Remove("gone/file.txt")
		_ = os.Remove("gone")
		_ = os.Symlink("/etc/passwd", "link")
		write("task.txt", string(task))
		say(m{"type": "user", "message": m{"content": []m{{"type": "tool_result", "tool_use_id": "t", "content": "ok"}}}})
		result("It is written; the key is " + os.Getenv("AGENT_API_KEY"))
	case "asks":
		if strings.Contains(string(task), "Your owner answered: the left one") {
			result("I took the left one.")
			return
		}
		result("There are two.\nrouse-question: Which one, left or right?")
	case "turns without end":
		for i := 0; ; i++ {
			answer(fmt.Sprint(i), "again", 1, 1)
			time.Sleep(time.Millisecond)
		}
	case "tokens without end":
		for i := 0; ; i++ {
			answer("same", "again", 0, 0)
			answer(fmt.Sprint(i), "", 500, 500)
			time.Sleep(time.Millisecond)
		}
	case "writes without end":
		for {
			answer("same", strings.Repeat("z", 10_000), 0, 0)
			time.Sleep(time.Millisecond)
		}
	case "silent": // ignores SIGTERM, and has a child that would continue
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command("sleep", "600")
		_ = child.Start()
		write("child.txt", fmt.Sprint(child.Process.Pid))
		time.Sleep(time.Hour)
	case "crashes":
		answer("1", "I begin.", 5, 5)
		write("half.txt", "half")
		fmt.Fprintln(os.Stderr, "panic: out of ideas")
		os.Exit(3)
	case "reports and hangs", "reports a failure and hangs":
		write("done.txt", "done")
		answer("1", "The work is done.", 5, 5)
		fails := does != "reports and hangs"
		say(m{"type": "result", "subtype": "success", "is_error": fails, "result": map[bool]string{true: "no luck"}[fails], "total_cost_usd": 0.25})
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "fails once":
		if strings.Contains(string(task), "did not succeed") {
			write("second.txt", string(task))
			result("It is done at last.")
			return
		}
		write("half.txt", "half")
		fmt.Fprintln(os.Stderr, "the first try was no good")
		os.Exit(3)
	case "signed in":
		result(fakeLogin())
	case "tells tokens": // no cost, like Codex
		say(m{"type": "thread.started", "thread_id": "t"})
		say(m{"type": "item.completed", "item": m{"id": "i", "type": "agent_message", "text": "I have counted."}})
		say(m{"type": "turn.completed", "usage": m{"input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 100}})
	case "limited":
		say(m{"type": "rate_limit_event", "rate_limit_info": m{"status": "rejected", "resetsAt": time.Now().Add(2 * time.Hour).Unix()}})
		say(m{"type": "result", "subtype": "success", "is_error": true, "result": "You've hit your limit", "total_cost_usd": 0, "num_turns": 0})
		os.Exit(1)
	case "limited in words", "limited after its work":
		if does == "limited after its work" {
			write("half.txt", "half")
		}
		const sentence = "You've hit your session limit · resets in 2 hours"
		say(m{"type": "assistant", "message": m{"id": "1", "model": "<synthetic>", "content": []m{{"type": "text", "text": sentence}}}})
		say(m{"type": "result", "subtype": "success", "is_error": true, "result": sentence, "num_turns": 1})
		os.Exit(1)
	case "limited in text":
		fmt.Fprintln(os.Stderr, "ERROR: the quota of the team is used up")
		os.Exit(1)
	case "attacks":
		answer("1", "I attack: "+fakeAttacks(), 1, 1)
		result("I tried: " + fakeAttacks())
	}
}

// fakeLogin describes the files in its HOME, and which of them can be changed.
func fakeLogin() string {
	var out []string
	for _, name := range []string{".agent/token", ".config/renewed/token"} {
		path := filepath.Join(os.Getenv("HOME"), name)
		token, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		out = append(out, fmt.Sprintf("%s, written: %t", token, os.WriteFile(path, []byte("renewed"), 0o600) == nil))
	}
	return strings.Join(out, "; ")
}

// fakeAttacks tries to access everything that an agent program must not reach, and describes the
// successes.
func fakeAttacks() string {
	var could []string
	for name, path := range map[string]string{"read a secret": os.Getenv("CANARY"), "read the record": os.Getenv("LEDGER")} {
		if _, err := os.ReadFile(path); err == nil {
			could = append(could, name)
		}
	}
	if os.WriteFile(os.Getenv("OUTSIDE"), []byte("x"), 0o644) == nil {
		could = append(could, "write outside")
	}
	if c, err := net.DialTimeout("tcp", os.Getenv("SERVER"), time.Second); err == nil {
		_ = c.Close()
		could = append(could, "reach the network")
	}
	if os.Getenv("ROUSE_TEST_DAEMON_SECRET") != "" {
		could = append(could, "see the daemon's environment")
	}
	if len(could) == 0 {
		return "nothing worked"
	}
	return strings.Join(could, ", ")
}
