package page

import (
	"regexp"
	"strings"
)

// Command is one simple command of a block.
type Command struct {
	Line  int
	Words []string
}

// prompt begins the lines with commands in an example.
const prompt = "$ "

// Commands returns the simple commands in the block: all of those in one of language sh, those after a prompt in any other.
func (b Block) Commands() []Command {
	var commands []Command
	lines := b.Lines
	for i := 0; i < len(lines); i++ {
		number, text := b.Line+1+i, lines[i]
		if b.Language() != "sh" {
			shown, ok := strings.CutPrefix(strings.TrimSpace(text), prompt)
			if !ok {
				continue
			}
			text = shown
		}
		for strings.HasSuffix(text, `\`) && i+1 < len(lines) {
			i++
			text = strings.TrimSuffix(text, `\`) + " " + lines[i]
		}
		for _, words := range split(text) {
			commands = append(commands, Command{number, words})
		}
		if match := hereDocument.FindStringSubmatch(text); match != nil {
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != match[1]; i++ {
			}
		}
	}
	return commands
}

var hereDocument = regexp.MustCompile(`<<-?\s*["']?([A-Za-z_]+)["']?`)

// keywords of the shell stand before commands.
var keywords = map[string]bool{"if": true, "then": true, "else": true, "elif": true, "while": true, "until": true, "do": true, "!": true, "time": true, "exec": true, "{": true, "sudo": true}

// split cuts one line into commands of words. A substitution is seen as a command too, also in double quotes.
func split(text string) [][]string {
	var s splitter
	runes := []rune(text)
	var quote rune
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		substitutes := r == '$' && i+1 < len(runes) && runes[i+1] == '('
		switch {
		case quote == '\'' && r != '\'', quote == '"' && r != '"' && !substitutes:
			s.add(r)
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, s.inWord = r, true
		case substitutes:
			inner, length := substitution(runes[i+2:])
			s.commands = append(s.commands, split(inner)...)
			i += 1 + length
			s.add('x')
		case r == '#' && !s.inWord:
			s.endCommand()
			return s.commands
		case strings.ContainsRune("|;&()", r):
			s.endCommand()
		case r == ' ' || r == '\t':
			s.endWord()
		default:
			s.add(r)
		}
	}
	s.endCommand()
	return s.commands
}

// splitter has what split has read so far.
type splitter struct {
	commands [][]string
	words    []string
	word     strings.Builder
	inWord   bool
}

func (s *splitter) add(r rune) {
	s.word.WriteRune(r)
	s.inWord = true
}

func (s *splitter) endWord() {
	if !s.inWord {
		return
	}
	text := s.word.String()
	s.word.Reset()
	s.inWord = false
	if len(s.words) > 0 || !keywords[text] && !assignment.MatchString(text) {
		s.words = append(s.words, text)
	}
}

func (s *splitter) endCommand() {
	s.endWord()
	if len(s.words) > 0 {
		s.commands = append(s.commands, s.words)
	}
	s.words = nil
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// substitution returns what stands before the parenthesis that closes a substitution, and how many runes that takes.
func substitution(runes []rune) (inner string, length int) {
	depth := 1
	for i, r := range runes {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return string(runes[:i]), i + 1
			}
		}
	}
	return string(runes), len(runes)
}
