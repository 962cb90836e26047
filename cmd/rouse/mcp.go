package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/mcpserver"
	"rouse/internal/text"
)

func newMCP(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Lets another agent program ask rouse, by the Model Context Protocol on standard input and output",
		Long: `Answers one client of the Model Context Protocol, which starts this command: jobs, runs and
why they ran or did not, the inbox, questions (no approvals), and agents' databases, read-only.
Over the network the same is at /mcp of the dashboard, with its token.

  {"mcpServers": {"rouse": {"command": "rouse", "args": ["mcp", "--config", "/home/me/rouse.yaml"]}}}`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMCP(cmd, env) },
	}
}

func runMCP(cmd *cobra.Command, env *cli) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	// Open the home for each call only, so that a daemon can start between calls.
	connect := func(ctx context.Context) (mcpserver.Connection, error) {
		s, err := env.connect(ctx, toChange)
		if err != nil {
			return mcpserver.Connection{}, err
		}
		return mcpserver.Connection{Client: s.Client, Close: s.close, Executes: s.daemon}, nil
	}
	server := mcpserver.New(mcpserver.Options{Version: buildinfo.Version(), Logger: slog.New(slog.DiscardHandler), Done: ctx, Connect: connect})

	return server.ServeStream(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
}

func newMCPServers(env *cli) *cobra.Command {
	list := showing(env, "/v1/mcp-servers", listMCPServers)
	cmd := &cobra.Command{
		Use:   "mcp-servers",
		Short: "Lists the MCP servers whose tools agents may have, approves their tools, and signs in there",
		Long: `Lists the servers of the Model Context Protocol that are configured (mcp:), with their tools.
An agent has a tool of a server once you have approved it, as it stands: one that is new, or whose
description or arguments have changed since, is off until you approve it again.

This lists what was seen last, and starts nothing. (rouse mcp is another thing: it lets other
programs ask rouse.)`,
		Example: `  rouse mcp-servers show github
  rouse mcp-servers approve github
  rouse mcp-servers approve github search_issues get_issue`,
		RunE: list,
	}
	cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "Lists the MCP servers", RunE: list}, newMCPShow(env), newMCPApprove(env), newMCPRevoke(env), newMCPSignIn(env))
	return cmd
}

func mcpPath(name, what string) string { return "/v1/mcp-servers/" + url.PathEscape(name) + "/" + what }

func listMCPServers(s *session, servers []api.MCPServer) error {
	none := "no MCP server is configured; to give one to an agent: mcp: [{name: NAME, argv: [PROGRAM]}], and mcp: [NAME] of the agent"
	return list(s.out, servers, none, "NAME AGENTS TOOLS SEEN WHERE", func(one api.MCPServer) []string {
		return []string{one.Name, orDash(strings.Join(one.Agents, ", ")), mcpCounts(one), when(one.SeenAt, s.now()), one.Where}
	})
}

// mcpCounts returns the number of a server's tools in each state.
func mcpCounts(s api.MCPServer) string {
	if s.Problem != "" {
		return s.Problem
	}
	counts := map[string]int{}
	for _, t := range s.Tools {
		counts[t.Status]++
	}
	var out []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[status], status))
	}
	if s.SignIn == "unauthorized" {
		out = append(out, "not signed in")
	}
	return cmp.Or(strings.Join(out, ", "), map[bool]string{true: "never asked", false: "none"}[s.SeenAt.IsZero()])
}

func newMCPShow(env *cli) *cobra.Command {
	var kept bool
	var as string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Starts an MCP server to see which tools it has, and shows them with what has changed",
		Long: `Starts an MCP server, or asks at its address, and shows its tools as models would read them, with
what has changed since you approved them. Whatever it says is its own word, also of what its tools do.

Its program is started without folders and without a network. One that does not start so can be given
those of an agent with --as: only for a program that you trust with them. What it may write there is
labelled as untrusted.`,
		RunE: env.with(toChange, func(s *session, args []string) error {
			server, err := lookAtMCP(s, args[0], as, kept)
			if err != nil {
				return err
			}
			return jsonOr(s.cmd, server, func() error { return printMCPServer(s.out, server) })
		}),
	}
	cmd.Flags().BoolVar(&kept, "kept", false, "show what was seen last, and start nothing")
	addLookAs(cmd, &as)
	return cmd
}

func addLookAs(cmd *cobra.Command, as *string) {
	cmd.Flags().StringVar(as, "as", "", "start its program with the folders and the network that runs of this `agent` give it")
}

// lookAtMCP returns the current state of a server, or the last known state if kept is true.
func lookAtMCP(s *session, name, as string, kept bool) (out api.MCPServer, err error) {
	if !kept {
		return out, s.post(mcpPath(name, "look"), api.MCPLook{As: as}, &out)
	}
	var all []api.MCPServer
	if err := s.get("/v1/mcp-servers", nil, &all); err != nil {
		return out, err
	}
	return named("MCP server", name, all, func(s api.MCPServer) string { return s.Name })
}

func printMCPServer(w io.Writer, s api.MCPServer) error {
	fmt.Fprintf(w, "%s  %s\n", s.Name, text.OneLine(s.Where))
	if s.Says != "" {
		fmt.Fprintf(w, "  it calls itself %s\n", text.OneLine(s.Says))
	}
	for _, t := range s.Tools {
		printMCPTool(w, t)
	}
	fmt.Fprintf(w, "\n%s: %s\n", text.Plural(len(s.Tools), "tool"), mcpCounts(s))
	if s.Refused != "" {
		fmt.Fprintf(w, "warning: all its calls are refused: %s\n", text.OneLine(s.Refused))
	}
	return nil
}

func printMCPTool(w io.Writer, t api.MCPTool) {
	fmt.Fprintf(w, "\n%s  (%s)\n", text.OneLine(t.Name), t.Status)
	switch {
	case t.Why != "":
		fmt.Fprintf(w, "  it cannot be used: %s\n", text.OneLine(t.Why))
	case t.Difference != "":
		fmt.Fprintf(w, "%s\n", indented(t.Difference))
	case t.Status != "approved" || len(t.Schema) > 0:
		fmt.Fprintf(w, "%s\n", indented(t.Description))
		if len(t.Schema) > 0 {
			fmt.Fprintf(w, "  arguments: %s\n", text.Visible(string(t.Schema)))
		}
	default:
		fmt.Fprintf(w, "%s\n", indented(text.Truncate(t.Description, 200)))
	}
	if t.Annotations != "" {
		fmt.Fprintf(w, "  the server says of it: %s (nothing is decided by that)\n", text.OneLine(t.Annotations))
	}
}

// indented indents a text of several lines and escapes it for a terminal.
func indented(s string) string {
	lines := strings.Split(strings.TrimSuffix(text.Visible(s), "\n"), "\n")
	return "  " + strings.Join(lines, "\n  ")
}

func newMCPApprove(env *cli) *cobra.Command {
	var yes bool
	var as string
	cmd := &cobra.Command{
		Use:   "approve NAME [TOOL…]",
		Short: "Shows the tools of an MCP server as they are now, and approves them for the agents that have it",
		Long: `Shows the tools of an MCP server as they are now, and approves all of them, or those that are named,
for the agents that have the server. What is approved is what is shown: its description and its
arguments. Where they change, the tool is off until it is approved again.

To show them, its program is started without folders and without a network; see --as.`,
		RunE: env.with(toChange, func(s *session, args []string) error { return approveMCP(s, args[0], args[1:], as, yes) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "approve without being asked")
	addLookAs(cmd, &as)
	return cmd
}

func approveMCP(s *session, name string, tools []string, as string, yes bool) error {
	server, err := lookAtMCP(s, name, as, false)
	if err != nil {
		return err
	}

	in := api.MCPApproval{Shown: map[string]string{}, Tools: mcpTools(name, tools)}
	shown := server
	shown.Tools = nil
	for _, t := range server.Tools {
		in.Shown[t.Tool] = t.Hash
		if len(in.Tools) == 0 || slices.Contains(in.Tools, t.Tool) {
			shown.Tools = append(shown.Tools, t)
		}
	}
	if !wantsJSON(s.cmd) {
		if err := printMCPServer(s.out, shown); err != nil {
			return err
		}
	}
	if !yes {
		if err := confirm(s.cmd, "Approve them as they are?", "nothing was approved"); err != nil {
			return err
		}
	}

	var out api.MCPApproved
	return s.send(mcpPath(name, "approve"), in, &out, func() error {
		for _, t := range slices.Sorted(maps.Keys(out.Unusable)) {
			fmt.Fprintf(s.out, "not approved, for it cannot be used: %s: %s\n", text.OneLine(t), text.OneLine(out.Unusable[t]))
		}
		return sayf(s.out, "%s approved: %s\n", text.Plural(len(out.Tools), "tool"), orDash(text.OneLine(strings.Join(out.Tools, ", "))))
	})
}

// mcpTools removes the server's prefix from names of tools. Agents see names with the prefix.
func mcpTools(server string, tools []string) (out []string) {
	for _, t := range tools {
		out = append(out, strings.TrimPrefix(t, server+"__"))
	}
	return out
}

func newMCPRevoke(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME [TOOL…]",
		Short: "Takes back the approval of the tools of an MCP server, of all or of some",
		RunE: env.with(toChange, func(s *session, args []string) error {
			var out api.MCPApproved
			return s.send(mcpPath(args[0], "revoke"), api.MCPApproval{Tools: mcpTools(args[0], args[1:])}, &out, func() error {
				return sayf(s.out, "%s not approved any more: %s\n", text.Plural(len(out.Tools), "tool"), orDash(text.OneLine(strings.Join(out.Tools, ", "))))
			})
		}),
	}
}

func newMCPSignIn(env *cli) *cobra.Command {
	var reply string
	cmd := &cobra.Command{
		Use:   "sign-in NAME",
		Short: "Gives the link with which you sign in at an MCP server that asks who you are",
		Long: `Asks an MCP server where one signs in, registers rouse there where you have not, and gives the link to
open. A running daemon hears when your browser comes back; else give the address that it was sent
to with --reply. The tokens are kept as secrets are, and renewed by themselves; rouse skills sign-ins
lists them and forgets them.`,
		RunE: env.with(toChange, func(s *session, args []string) error {
			var out api.MCPSignIn
			return s.send(mcpPath(args[0], "sign-in"), api.MCPReply{Address: reply}, &out, func() error {
				switch {
				case out.SignedIn:
					return sayf(s.out, "signed in at %s; look at its tools: rouse mcp-servers approve %[1]s\n", args[0])
				case out.Link == "":
					return errors.New("there is no link")
				}
				fmt.Fprintf(s.out, "Open this and sign in:\n\n  %s\n\n", text.OneLine(out.Link))
				if s.daemon {
					return nil
				}
				return sayf(s.out, "No daemon hears when your browser comes back. Copy the address that it is sent to, and give it with:\n  rouse mcp-servers sign-in %s --reply ADDRESS\n", args[0])
			})
		}),
	}
	cmd.Flags().StringVar(&reply, "reply", "", "the `address` that the browser was sent to")
	return cmd
}
