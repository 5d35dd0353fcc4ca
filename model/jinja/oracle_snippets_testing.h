// Test support: the small templates of jinja_oracle_test.cc. Included by tests only.
#pragma once

namespace larder::model::inline jinja {

constexpr char kOracleVariables[] = R"({
  "s": "Hello, World", "e": "", "u": "Grüße 東京 👩‍🚀", "p": "  pad \n\t", "q": "it's \"q\" \\ \n", "lines": "a\nb\r\nc\n\nd",
  "n": 7, "z": 0, "neg": -7, "f": 2.5, "big": 1e16, "tiny": 0.00001, "t": true, "no": false, "none_value": null,
  "l": [3, 1, 2], "le": [], "ls": ["b", "A", "c", "a"], "lm": [1, "a", null, true, 2.0, [1], {"k": 1}],
  "d": {"b": 1, "a": "x", "C": [1, 2], "items": 5}, "de": {}, "nested": {"a": {"b": [{"c": "deep"}]}},
  "people": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25}, {"name": "Bob", "age": 30, "tags": []}],
  "html": "<b>&\"'", "csv": "a,b,,c", "words": "one  two\tthree", "pairs": [["a", 1], ["b", 2]]
})";

constexpr const char* kOracleSnippets[] = {
    // Printing
    "{{ s }}|{{ e }}|{{ u }}|{{ n }}|{{ f }}|{{ t }}|{{ no }}|{{ none_value }}|{{ missing }}",
    "{{ big }} {{ tiny }} {{ 1e22 }} {{ 123456789.0 }} {{ 0.1 + 0.2 }} {{ 1e-4 }} {{ 100.0 }} "
    "{{ 1.5e300 }} {{ -0.0 }} {{ 1e15 }}",
    "{{ l }} {{ ls }} {{ lm }} {{ d }} {{ nested }} {{ (1, 2) }} {{ (1,) }} {{ () }} {{ {} }} {{ "
    "[] }}",
    "{{ [q, u, html, p, lines] }}",
    "{{ {'a': missing, 1: 2, none: true, 1.5: 'x'} }}",
    "{{ \"a\\tb\\u00e9\\x41\\n\\q\\101\" }}",
    "{{ 'a' 'b' \"c\" }}",
    "{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }} {{ 3.14e2 }} {{ 3e2 }}",
    // Arithmetic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} "
    "{{ 6 / 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 2.0 ** 3 }} "
    "{{ 1 + 2.5 }} {{ 3 * 1.5 }}",
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ - n }} {{ + n }} "
    "{{ -n|abs }} {{ not n }}",
    "{{ 1 / 0 }}",
    "{{ 1 // 0 }}",
    "{{ 1 % 0 }}",
    "{{ 1.0 / 0 }}",
    "{{ 'a' + 1 }}",
    "{{ 1 + 'a' }}",
    "{{ 'a' - 'b' }}",
    "{{ [1] + [2] }} {{ (1,) + (2,) }}",
    "{{ [1] + (2,) }}",
    "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * -1 }} {{ [1, 2] * 2 }} {{ true + true }} {{ "
    "none_value + 1 }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ [1] ~ missing ~ 1.0 }}",
    "{{ 1 ~ 2 + 3 }}",
    "{{ 1 + 2 ~ 3 }}",
    "{{ 2 * 3 ~ 4 }}",
    "{{ missing + 1 }}",
    "{{ missing ~ 1 }}",
    "{{ -missing }}",
    "{{ missing * 2 }}",
    "{{ -'a' }}",
    // Comparison and logic
    "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} "
    "{{ [1, 2] < [1, 3] }} {{ 1 != 2 }}",
    "{{ 1 < 'a' }}",
    "{{ none < 1 }}",
    "{{ missing < 1 }}",
    "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}",
    "{{ [1] == [1] }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' == 'a' }} {{ none == "
    "false }}",
    "{{ 1 in l }} {{ 9 in l }} {{ 9 not in l }} {{ 'b' in d }} {{ 'Hello' in s }} "
    "{{ 'x' not in s }} {{ not 1 in l }} {{ '' in s }}",
    "{{ 1 in s }}",
    "{{ 1 in none }}",
    "{{ 1 in missing }}",
    "{{ missing in l }}",
    "{{ missing in s }}",
    "{{ [1] in d }}",
    "{{ 1 in 1 }}",
    "{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ e or 'y' }} {{ missing or 'z' }} {{ not e }} "
    "{{ not l }} {{ none or false }}",
    "{{ 'a' if t else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| "
    "{{ 'a' if no else 'b' if no else 'c' }}",
    "{{ ('x' if no) is defined }}",
    "{{ 1 if 0 else 2 if 0 else 3 }}",
    "{{ [1, 2] if t else [] }}",
    "{{ 1 == 1 == 1 }} {{ 1 in [1] in [[1]] }}",
    // Attributes and elements
    "{{ d.a }} {{ d['a'] }} {{ d.missing }}| {{ d['missing'] }}| {{ nested.a.b[0].c }} {{ "
    "nested['a']['b'][-1]['c'] }}",
    "{{ d.items is callable }}|{{ d['items'] }}",
    "{{ missing.x }}",
    "{{ missing['x'] }}",
    "{{ d.missing.x }}",
    "{{ none_value.x }}|",
    "{{ none_value['x'] }}|",
    "{{ none_value.x.y }}",
    "{{ l[0] }} {{ l[-1] }} {{ l[5] }}| {{ l.0 }} {{ s[0] }} {{ s[-1] }} {{ u[6] }} {{ u[-1] }} "
    "{{ s[99] }}| {{ s.x }}|",
    "{{ l['0'] }}|{{ l.foo }}|{{ n.foo }}|{{ n[0] }}|{{ t.x }}|",
    "{{ pairs[1][0] }} {{ pairs.1.1 }}",
    "{{ d[l] }}|",
    "{{ l[1.5] }}|",
    "{{ l[none] }}|",
    "{{ l[:2] }} {{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[:-1] }} {{ l[::2] }} {{ l[5:] }} "
    "{{ l[:] }} {{ l[2:0:-1] }} {{ (1, 2, 3)[1:] }}",
    "{{ s[:5] }} {{ s[7:] }} {{ s[::-1] }} {{ s[-5:-1] }} {{ u[1:8] }} {{ u[::2] }} {{ s[3:1] }}| "
    "{{ s[::3] }} {{ s[-100:3] }} {{ u[::-1] }}",
    "{{ l[::0] }}",
    "{{ d[1:] }}",
    "{{ none_value[1:] }}",
    "{{ missing[1:] }}",
    "{{ n[1:] }}",
    "{{ s['a':] }}",
    "{{ l[missing:] }}",
    // Strings' methods
    "{{ p.strip() }}|{{ p.lstrip() }}|{{ p.rstrip() }}|{{ 'xxaxx'.strip('x') }}|"
    "{{ 'abcab'.strip('ab') }}|{{ 'ab'.lstrip('a') }}|{{ 'éaé'.strip('é') }}|"
    "{{ 'ab'.rstrip('b') }}",
    "{{ csv.split(',') }} {{ csv.split(',', 1) }} {{ csv.split(',', maxsplit=2) }} "
    "{{ words.split() }} {{ words.split(none, 1) }} {{ csv.rsplit(',', 1) }} {{ words.rsplit() }} "
    "{{ words.rsplit(none, 1) }}",
    "{{ e.split() }} {{ e.split(',') }} {{ ' a '.split(' ') }} {{ 'abc'.split('bc') }} {{ '  a b "
    "'.split(none, 1) }}",
    "{{ s.split('') }}",
    "{{ s.split(1) }}",
    "{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ e.splitlines() }} {{ "
    "'a\\n'.splitlines() }}",
    "{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} "
    "{{ s.endswith(('x', 'y')) }} {{ s.startswith('l', 2) }} {{ s.startswith('') }}",
    "{{ s.startswith(['x', 'H']) }}",
    "{{ s.startswith(1) }}",
    "{{ s.startswith() }}",
    "{{ s.nothing() }}",
    "{{ s.strip(1) }}",
    "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'ab'.replace('', '-') }} "
    "{{ s.replace('x', 'y') }} {{ 'aaa'.replace('aa', 'b') }}",
    "{{ s.upper() }} {{ s.lower() }} {{ u.upper() }} {{ u.lower() }} "
    "{{ 'hello wORLD it\\'s'.title() }} {{ 'hELLO'.capitalize() }} {{ s.swapcase() }} "
    "{{ 'éa'.capitalize() }}",
    "{{ s.find('o') }} {{ s.find('z') }} {{ s.rfind('o') }} {{ s.find('o', 5) }} {{ u.find('東') }} "
    "{{ s.count('l') }} {{ s.index('W') }} {{ s.count('') }} {{ s.find('o', -3) }}",
    "{{ s.index('z') }}",
    "{{ ', '.join(ls) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ ','.join(d) }}",
    "{{ ','.join(l) }}",
    "{{ ','.join(missing) }}",
    "{{ ','.join(none) }}",
    "{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} "
    "{{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'aB'.islower() }} {{ 'é'.isalpha() }} "
    "{{ '1'.isnumeric() }}",
    "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ "
    "'abc'.rpartition('=') }}",
    "{{ 'x'.center(5) }}| {{ 'x'.center(4, '*') }}| {{ 'ab'.center(5, '*') }}| "
    "{{ 'x'.ljust(3, '.') }}| {{ 'x'.rjust(3) }}| {{ '-5'.zfill(4) }} {{ '5'.zfill(3) }}",
    "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removeprefix('x') }} {{ "
    "'ABC'.casefold() }}",
    // Formatting
    "{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{x}'.format(x=5) }} {{ '"
    "{{}}'.format() }} {{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }}",
    "{{ '{:05d} {:+d} {:,} {:x} {:#x} {:b}'.format(42, 42, 1234567, 255, 255, 5) }} {{ '{:.2f} "
    "{:.3e} {:g} {:%}'.format(3.14159, 12345.678, 0.0001, 0.25) }}",
    "{{ '{!r} {!s}'.format('a', 'b') }} {{ '{0[a]}'.format(d) }} {{ '{:*^7}'.format('x') }} {{ "
    "'{:.2}'.format('abc') }} {{ '{:{w}}|'.format('a', w=4) }}",
    "{{ '{}'.format() }}",
    "{{ '{'.format(1) }}",
    "{{ '}'.format(1) }}",
    "{{ '{x}'.format(y=1) }}",
    "{{ '{:d}'.format('a') }}",
    "{{ '{:d}'.format(1.5) }}",
    "{{ '%s %d %.2f %5s|%-5s|%05d %x %%' % ('a', 3, 2.5, 'b', 'c', 42, 255) }} {{ '%s' % 'x' }} "
    "{{ '%(a)s' % d }} {{ '%r' % 'q' }} {{ '%i' % 3.7 }} {{ '%e' % 12345.6 }} {{ '%g' % 0.5 }} "
    "{{ '%c' % 'x' }}",
    "{{ '%s %s' % ('a',) }}",
    "{{ '%s' % ('a', 'b') }}",
    "{{ '%d' % 'a' }}",
    "{{ 'abc' % 1 }}",
    "{{ '%s' % [1] }} {{ 'x' % [] }}",
    "{{ '%s-%s'|format(1, 2) }} {{ '%(x)s'|format(x=1) }}",
    "{{ '%q' % 1 }}",
    "{{ '%' % 1 }}",
    // Dicts and lists
    "{{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys()|list }} "
    "{{ d.values()|list }} {{ d.items()|list }}",
    "{{ d.get() }}",
    "{{ d.get([1]) }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% set x = [1, 2] %}{% set _ = x.append(3) %}{{ x }} {{ x.pop() }} {{ x.pop(0) }} {{ x }}"
    "{% set _ = x.insert(0, 9) %}{% set _ = x.extend([7, 8]) %}{{ x }} {{ x.index(7) }} "
    "{{ x.count(7) }}",
    "{% set x = {'a': 1} %}{% set _ = x.update({'b': 2}, c=3) %}{{ x }} {{ x.pop('a') }} "
    "{{ x.pop('zz', 4) }} {{ x }} {{ x.setdefault('q', 1) }} {{ x.copy() }}",
    "{{ [].pop() }}",
    "{{ {}.pop('a') }}",
    "{{ [1].index(2) }}",
    "{{ l.index(1) }} {{ (1, 2, 1).count(1) }}",
    "{% set x = [3, 1] %}{% set _ = x.reverse() %}{{ x }}{% set _ = x.remove(3) %}{{ x }}",
    "{{ {'a': 1, 'a': 2} }} {{ {1: 'x'}[1] }} {{ {'a': 1}.a }} {{ {[1]: 2} }}",
    "{{ {'a': 1,} }} {{ [1,] }} {{ (1, 2,) }}",
    // Filters
    "{{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ missing|length }} {{ e|count "
    "}}",
    "{{ n|length }}",
    "{{ none|length }}",
    "{{ p|trim }}| {{ 'xax'|trim('x') }}| {{ missing|trim }}| {{ 5|trim }} {{ none|trim }}",
    "{{ s|upper }} {{ s|lower }} {{ 'foo (bar)-baz qUX'|title }} {{ 'hELLO wORLD'|capitalize }} "
    "{{ 5|upper }} {{ none|lower }} {{ 'straße'|upper }}",
    "{{ l|join }} {{ l|join(', ') }} {{ people|join(', ', attribute='name') }} {{ lm|join('|') }} "
    "{{ missing|join(',') }} {{ 'abc'|join('-') }} {{ d|join(',') }}",
    "{{ 5|join }}",
    "{{ none|join }}",
    "{{ missing|default('x') }} {{ e|default('x') }}| {{ e|default('x', true) }} "
    "{{ none|default('x') }} {{ none|default('x', boolean=True) }} {{ d.zz|d(1) }} "
    "{{ missing|default }}|",
    "{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ le|first }}| {{ le|last }}| {{ "
    "d|first }}",
    "{{ le|first|upper }}",
    "{{ n|first }}",
    "{{ l|sort }} {{ l|sort(reverse=true) }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ "
    "people|sort(attribute='name')|map(attribute='name')|list }} {{ "
    "people|sort(attribute='age,name')|map(attribute='name')|join(',') }}",
    "{{ lm|sort }}",
    "{{ ls|unique|list }} {{ [1, 1.0, 2, '1']|unique|list }} {{ "
    "people|unique(attribute='age')|map(attribute='name')|list }} {{ ['a', 'A']|unique(true)|list "
    "}}",
    "{{ l|reverse|list }} {{ s|reverse }} {{ l|max }} {{ l|min }} {{ l|sum }} "
    "{{ people|sum(attribute='age') }} {{ [1, 2]|sum(start=10) }} {{ ls|max }} {{ ls|min }} "
    "{{ le|max }}| {{ people|max(attribute='age') }}",
    "{{ ['a']|sum }}",
    "{{ people|map(attribute='name')|list }} {{ people|map(attribute='zz', default='?')|list }} {{ "
    "ls|map('upper')|list }} {{ [' a ']|map('trim')|join }} {{ pairs|map(attribute=0)|list }} {{ "
    "people|map(attribute='tags.0')|list }} {{ ['a1', 'b1']|map('replace', '1', '2')|list }}",
    "{{ l|map()|list }}",
    "{{ l|map('nothing')|list }}",
    "{{ l|nothing }}",
    "{{ [0, 1, '', 'a', none]|select|list }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} "
    "{{ l|select('greaterthan', 1)|list }} {{ [0, 1]|reject|list }} "
    "{{ l|select('in', [1, 2])|list }}",
    "{{ people|selectattr('tags')|map(attribute='name')|list }} "
    "{{ people|selectattr('age', 'equalto', 30)|list|length }} "
    "{{ people|rejectattr('age', 'eq', 30)|map(attribute='name')|list }} "
    "{{ people|selectattr('tags', 'defined')|list|length }} {{ people|selectattr('name', 'in', "
    "['Bob'])|map(attribute='age')|first }}",
    "{{ l|select('nothing')|list }}",
    "{{ people|selectattr()|list }}",
    "{{ people|selectattr('missing.x')|list }}",
    "{{ d|items|list }} {{ missing|items|list }} {{ d|dictsort }} {{ d|dictsort(true) }} "
    "{{ {'a': 2, 'b': 1}|dictsort(by='value') }} {{ {'a': 2, 'b': 1}|dictsort(reverse=true) }}",
    "{{ l|items|list }}",
    "{{ d|dictsort(by='x') }}",
    "{{ s|list }} {{ d|list }} {{ missing|list }} {{ (1, 2)|list }}",
    "{{ 5|list }}",
    "{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ 4.9|int }} {{ -4.9|int }} "
    "{{ true|int }} {{ none|int }} {{ '0x1f'|int(base=16) }} {{ ' 5 '|int }} {{ '1_000'|int }} "
    "{{ '-3'|int }} {{ [1]|int }} {{ '1e3'|int }}",
    "{{ '4.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ none|float }} "
    "{{ '1e3'|float }} {{ 'inf'|float }} {{ 'nan'|float }}",
    "{{ missing|int }}",
    "{{ missing|float }}",
    "{{ 5|string }} {{ none|string }} {{ [1]|string }} {{ missing|string }}| {{ 1.0|string + 'x' "
    "}}",
    "{{ 42.55|round }} {{ 42.55|round(1) }} {{ 42.55|round(1, 'floor') }} "
    "{{ 42.51|round(0, 'ceil') }} {{ 42|round }} {{ 2.5|round }} {{ 3.5|round }} {{ -2.5|round }} "
    "{{ 1234|round(-2) }} {{ 2.675|round(2) }} {{ 5|round(1, 'ceil') }}",
    "{{ -5|abs }} {{ -5.5|abs }} {{ true|abs }}",
    "{{ 'a'|abs }}",
    "{{ 'a'|round }}",
    "{{ 1|round(1, 'x') }}",
    "{{ 'a\\nb\\n\\nc'|indent }}| {{ 'a\\nb'|indent(2, true) }}| "
    "{{ 'a\\n\\nb'|indent(2, blank=true) }}| {{ 'a\\nb\\n'|indent('> ') }}| {{ ''|indent }}| "
    "{{ 'a\\nb'|indent(width=1, first=True) }}",
    "{{ html|e }} {{ html|escape }} {{ html|safe }} {{ html|e|e }} {{ (html|safe) + '<' }} "
    "{{ ('<'|e) ~ '<' }} {{ 5|e }} {{ none|e }} {{ missing|e }}| {{ '<'|e|string + '<' }} "
    "{{ ('<'|e|upper) + '<' }}",
    "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 5|replace('5', 6) }} {{ "
    "s|replace('', '.') }}",
    "{{ words|wordcount }} {{ u|wordcount }} {{ ''|wordcount }}",
    "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz "
    "qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '..', 0) }}",
    "{{ 'x'|center(5) }}|{{ 'ab'|center(5) }}|",
    "{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} "
    "{{ [1, 2, 3, 4, 5]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, 'x')|list }}",
    "{% for k, g in people|groupby('age') %}{{ k }}:{{ g|map(attribute='name')|join(',') }};{% "
    "endfor %}",
    "{{ d|attr('a') }}|{{ s|attr('upper')() }}|{{ d|attr('get')('a') }}",
    "{{ d|tojson }} {{ lm|tojson }} {{ q|tojson }} {{ u|tojson }} "
    "{{ u|tojson(ensure_ascii=true) }} {{ html|tojson }} {{ none|tojson }} {{ 1.0|tojson }} "
    "{{ true|tojson }} {{ 'a\\u0000\\u001f\\u007f'|tojson }} {{ 1e100|tojson }}",
    "{{ d|tojson(indent=2) }} {{ [[], {}, [1, [2]]]|tojson(indent=1) }} "
    "{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true, indent=4) }} "
    "{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }} "
    "{{ d|tojson(indent='\\t') }}",
    "{{ missing|tojson }}",
    "{{ [missing]|tojson }}",
    "{{ {(1, 2): 3}|tojson }}",
    "{{ namespace()|tojson }}",
    "{{ d|tojson|safe }} {{ d|tojson|length }} {{ '</script>'|tojson }}",
    // Tests
    "{{ missing is defined }} {{ s is defined }} {{ missing is undefined }} "
    "{{ none_value is none }} {{ d.zz is none }} {{ s is not none }} {{ none is defined }}",
    "{{ s is string }} {{ n is string }} {{ n is number }} {{ f is number }} {{ t is number }} "
    "{{ n is integer }} {{ t is integer }} {{ f is float }} {{ n is float }} {{ t is boolean }} "
    "{{ n is boolean }}",
    "{{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ s is sequence }} "
    "{{ d is sequence }} {{ n is sequence }} {{ l is iterable }} {{ s is iterable }} "
    "{{ n is iterable }} {{ missing is iterable }} {{ missing is sequence }} "
    "{{ (1,) is sequence }} {{ namespace() is mapping }}",
    "{{ t is true }} {{ n is true }} {{ no is false }} {{ z is false }} {{ 1 is eq 1 }} "
    "{{ 1 is equalto(1) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is gt(1) }} {{ 1 is le 1 }} "
    "{{ 1 is ge 2 }} {{ 1 is in [1] }} {{ 'x' is in 'xyz' }} {{ 1 is not in [2] }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} "
    "{{ range is callable }} {{ s is callable }} {{ s.upper is callable }} {{ 'ab' is lower }} "
    "{{ 'AB' is upper }} {{ 'aB' is lower }} {{ 1 is lower }} {{ none is sameas none }} "
    "{{ 'upper' is filter }} {{ 'odd' is test }} {{ 'x' is filter }}",
    "{{ 1 is nothing }}",
    "{{ 'a' is odd }}",
    "{{ missing is odd }}",
    "{{ not s is string }} {{ s is string and n is number }} {{ s is not string or t }} "
    "{{ (s is string) == true }}",
    "{{ 1 is not eq 1 }}",
    "{{ s is string is true }}",
    "{{ 2 + 1 is odd }}",
    "{{ l|length is odd }}",
    "{{ -1 is odd }}",
    // Statements
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if z %}x{% elif z %}y{% else %}z"
    "{% endif %}{% if le %}1{% endif %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}"
    "{{ loop.cycle('a', 'b') }}{{ loop.depth }}{{ loop.changed(x) }},{% endfor %}",
    "{% for x in le %}a{% else %}empty{% endfor %}{% for x in l if x > 9 %}a{% else %}none{% "
    "endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}"
    "{% endif %}{% endfor %}",
    "{% for a, b in pairs %}{{ a }}{{ b }}{% endfor %}{% for (a, b) in pairs %}{{ a }}{% endfor %}",
    "{% for a, b in l %}{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for x in missing %}a{% else %}b{% endfor %}",
    "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for x in range(3) %}{% for y in range(2) %}{{ loop.index }}{{ x }}{% endfor %}"
    "{{ loop.index }};{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }} "
    "{{ ns.y }}| {{ ns['x'] }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
    "{% set d.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e2) = [3, 4] %}{{ c }}{{ e2 }}",
    "{% set a, b = 1 %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x = [1, 2] if t else 3 %}{{ x }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}",
    "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}",
    "{% if t %}{% set q1 = 5 %}{% endif %}{{ q1 }}",
    "{% for i in [1] %}{{ q2 }}{% set q2 = 1 %}{{ q2 }}{% endfor %}{{ q2 }}",
    "{% for i in [1, 2] %}{{ q2 }}{% set q2 = i %}{% endfor %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|"
    "{{ m(b=5, a=6) }}|{{ m() }}|{{ m(1, 2, 3)|upper }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ n }}{% endcall %}",
    "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% "
    "endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 7 %}{{ m() }}",
    "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(*a) %}{% endmacro %}",
    "{% macro m() %}{{ s }}{% endmacro %}{% set s = 'changed' %}{{ m() }}",
    "{{ m2() }}",
    "{{ s() }}",
    "{{ n.x() }}",
    "{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}{{ m(1) }}{{ m }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}|{% filter replace('a', 'b')|upper %}aaa{% "
    "endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set z2 = 1 %}{{ z2 }}{% endwith %}{{ z2 }}",
    "{% generation %}a{{ n }}{% set inside = 1 %}{{ inside }}{% endgeneration %}{{ inside }}",
    "{% raw %}{{ not }} {% if %}{% endraw %}|",
    "a{# comment #}b{# multi\nline #}c",
    "{% set x = 1 -%}   y",
    "  {%- if t %} a {%+ endif %}",
    "a {%- raw %} x {%- endraw -%} b",
    "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }}",
    "{{ range() }}",
    "{{ range('a') }}",
    "{{ range(1, 2, 0) }}",
    "{{ range(1000000)|list|length }}",
    "{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=2) }} {{ dict([['a', 1]]) }}",
    "{% set j = joiner(',') %}{{ j() }}a{{ j() }}b{{ j() }}",
    "{{ raise_exception('no: ' ~ n) }}",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }} {{ strftime_now('') }}|",
    "{% for i in range(3) %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{{ loop }}",
    "{{ loop.index }}",
    "{% set a = {'x': [1, 2]} %}{% for k, v in a|items %}{{ k }}{{ v[0] }}{% endfor %}",
    "{{ (1, 2, 3)|join(',') }} {{ 1, 2 }}",
    "{{ s.split(', ')[-1].lower()|capitalize }}",
    "{{ people|map(attribute='name')|map('lower')|sort|join(' ') }}",
    "{{ {'a': {'b': 1}}.a.b }}",
    "{{ [[1, 2], [3]][0][1] }}",
    "{{ m(*[1, 2]) if m is defined else 'no' }}",
    "{% macro m(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], **{'c': 3}) }}",
    "{{ '%s' % s }} {{ s if s else 'x' }}",
    "{{ ('a', 'b')[1] }} {{ ('a') }} {{ ('a',)[0] }}",
    "{{ true and false or true }} {{ not true == false }}",
    "{{ not not 1 }}",
    "{{ 1 if true }}",
    "{{ none if none is none else 1 }}",
    // White space
    "  {% if t %}\n  a\n  {% endif %}\nb\n",
    "a\n\n{% if t %}\n\nb{% endif %}\n\nc\n\n",
    "x {% if t -%}  \n y  {%- endif %} z",
    "\t{% set a = 1 %}\n\t{{ a }}\n",
    "a {# c #}\n b\n  {# c #}\nd",
    "  {{ n }}  \n",
    "{% if t %}a{% endif +%}\nb",
    "  {%+ if t %}a{% endif %}",
    "{{- n -}} \n x",
    "a\r\nb\rc\n",
    "{%- for x in l -%}\n  {{ x }}\n{%- endfor -%}",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\n",
    "x{#- c -#}  y",
    "a\n  {#- c #}\nb",
    "  {% raw %}\n a {% endraw %}\n b",
    "{{ '{{' }} {{ '}}' }} {{ {'a': {}} }}",
    "{{ '%}' }}{% if '%}' == '%}' %}1{% endif %}",
    "text only\n",
    "\n\n",
    "{{ n }}\n{{ n }}\n",
    "\u00a0{%- if t %}x{% endif %}",
    // Wrong templates
    "{{ }}",
    "{% %}",
    "{{ n",
    "{% if t %}",
    "{% endif %}",
    "{% if %}a{% endif %}",
    "{% for x %}{% endfor %}",
    "{% unknown %}",
    "{{ n ! }}",
    "{{ 'abc }}",
    "{# abc",
    "{% raw %}x",
    "{{ (1 }}",
    "{{ [1 }}",
    "{{ 1) }}",
    "{{ a b }}",
    "{% set %}",
    "{% set 1 = 2 %}",
    "{% set none = 1 %}",
    "{{ 1 | }}",
    "{{ . }}",
    "{% else %}",
    "{% break %}",
    "{{ n. }}",
    "{{ n[] }}",
    "{{ f(a=1, 2) }}",
    "{% for x in l %}{% endif %}",
    "{% macro %}{% endmacro %}",
    "{{ n }",
    "{ { n } }",
    "{%",
    "{{",
    "{#",
    "}} %} #}",
    "{{ 1__0 }}",
    "{{ 'a' is }}",
    "{% if t %}a{% else %}b{% else %}c{% endif %}",
    "{% call n %}{% endcall %}",
    "{{ not }}",
    "{% for x in l recursive x %}{% endfor %}",
    "{{ a if }}",
    "{% include 'x' %}",
    "{{ n is defined if t else 3 }}",
    "{{ (n is defined) if t else 3 }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% set x.y.z = 1 %}",
};

}  // namespace larder::model::jinja
