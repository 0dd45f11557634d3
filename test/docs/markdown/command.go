package markdown

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Command is one simple command of a block.
type Command struct {
	Line  int
	Words []string
}

// prompt begins the lines with commands in an example.
const prompt = "$ "

// Commands returns the simple commands in the block, including those in substitutions. A block of
// language sh has only commands, any other has them after a prompt. Redirections and assignments
// are left out. A word is as the shell reads it, but with expansions left as they are written. Text
// that is not bash is an error.
func (b Block) Commands() ([]Command, error) {
	if b.Language() == "sh" {
		return parse(b.Page, b.Line, strings.Join(b.Lines, "\n"))
	}
	var all []Command
	for i := 0; i < len(b.Lines); i++ {
		text, shown := strings.CutPrefix(strings.TrimSpace(b.Lines[i]), prompt)
		if !shown {
			continue
		}
		before := b.Line + i
		for strings.HasSuffix(text, `\`) && i+1 < len(b.Lines) {
			i++
			text += "\n" + b.Lines[i]
		}
		commands, err := parse(b.Page, before, text)
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	return all, nil
}

// parse parses a script that begins on the line after before.
func parse(name string, before int, text string) ([]Command, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), name)
	if err != nil {
		return nil, fmt.Errorf("in the block below line %d: %w", before, err)
	}
	var commands []Command
	for node := range syntax.Preorder(file) {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			continue
		}
		c := Command{Line: before + int(call.Args[0].Pos().Line())}
		for _, word := range call.Args {
			c.Words = append(c.Words, unquoted(word.Parts))
		}
		// They run the command that follows.
		for len(c.Words) > 1 && slices.Contains([]string{"exec", "sudo", "command", "env"}, c.Words[0]) {
			c.Words = c.Words[1:]
		}
		commands = append(commands, c)
	}
	return commands, nil
}

// unquoted returns the text of a word without its quotes.
func unquoted(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(part.Value)
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			b.WriteString(unquoted(part.Parts))
		default:
			// Writing to a strings.Builder does not fail.
			_ = syntax.NewPrinter().Print(&b, part)
		}
	}
	return b.String()
}
