"""What the words around a call say: that it is being made, that it is only shown, or neither.

Words count whole, and only where they speak about the call: in the last sentence before it, without what stands in
quotes, code or parentheses. A sentence is gone through clause by clause and the last clause that says something counts:
"I won't print the key, but I'll list the folder" makes a call, "Never run this, it deletes the disk" does not. Words of
a script that does not part them are looked for as they are. All patterns work on a few hundred characters.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

_LONGEST = 400
KEPT = 128


class Wording(Enum):
    """What a sentence says about the call beside it."""

    MAKES = "makes"
    SHOWS = "shows"
    REMARKS = "remarks"
    UNSURE = "unsure"
    SILENT = "silent"


class Vocabulary:
    """Whole words in lower case, from a table of patterns with ` / ` between them.

    A line that ends with a bar goes on in the next one. Compiled at the first use: only few answers need it.
    """

    __slots__ = ("_pattern", "_table")

    def __init__(self, table: str) -> None:
        self._table = table
        self._pattern: re.Pattern[str] | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """The first of the words in a text."""
        if self._pattern is None:
            self._pattern = re.compile(self._written())
        return self._pattern.search(text)

    def _written(self) -> str:
        return rf"(?<![\w'])(?:{self._alternatives()})(?![\w'])"

    def _alternatives(self) -> str:
        joined = re.sub(r"\|\n\s*", "|", self._table)
        return "|".join(part for line in joined.split("\n") for part in line.strip().split(" / ") if part)


class Fragments(Vocabulary):
    """The same for scripts that do not part words, none of which is ASCII."""

    __slots__ = ()

    def search(self, text: str) -> re.Match[str] | None:
        return None if text.isascii() else super().search(text)

    def _written(self) -> str:
        return self._alternatives()


_RUN = (
    r"(?:run|runs|ran|running|execut\w*|call|calls|called|calling|invok\w*|us(?:e|es|ed|ing)|sen[dt]|sends|sending|do"
    r"|does|doing|done|did|mak(?:e|es|ing)|made|issu\w*|perform\w*|follow\w*|emit\w*|carry|carried"
    r"|tr(?:y|ied)|start\w*"
    r"|trigger\w*|delet\w*|comply|obey|help|proceed|touch|cop(?:y|ied)|paste\w*|type|submit\w*|scan|respond\w*|act"
    r"|load\w*|post\w*|creat\w*|chang\w*|written|booked|saved|applied|modified|published|uploaded|installed)"
)
_NOT = (
    r"(?:(?:do|does|did|will|would|shall|must|may|should|can|am|are|is|was|were|have|has|had|i'm"
    r"|we're|i'll|we'll) not"
    r"|don't|doesn't|didn't|won't|wouldn't|shan't|mustn't|shouldn't|cannot|can't|aren't|isn't|wasn't|haven't|hasn't"
    r"|hadn't|never(?! mind)|not)"
)
_REFUSES = Vocabulary(
    rf"""{_NOT}(?: \w+){{0,3}}? {_RUN}
    (?:nobody|no one) (?:should|must|may|can|ever) / (?:i|we) (?:must |have to |hereby )?(?:refuse|decline)(?: to)?
    (?:refus|declin)\w* to (?:\w+ ){{0,2}}?{_RUN} / (?:is|are|it's|strictly) (?:forbidden|prohibited|disallowed)
    under no circumstances / nothing (?:is|was|has been|will be|gets) (?:run|executed|sent|called|done)
    without (?:actually )?{_RUN} / (?:instead of|rather than) (?:running|calling|executing|sending)
    (?:ignored?|disregard\w*) (?:it|this|that|the) / me niego / me rehúso / je refuse / je m'y refuse
    ich weigere mich / ich lehne (?:das|es|dies) ab / mi rifiuto / recuso-me / eu me recuso / отказываюсь
    відмовляюся
    weiger ik / ik weiger / jag vägrar / jeg nekter / jeg nægter / odmawiam / odmítám / kieltäydyn / reddediyorum
    αρνούμαι / refuz / megtagadom"""
)
_SAYS = r"(?:say|show|print|list|write|describe|explain|tell|mention|quote|paste|display|output|sketch|illustrate|note)"
_SAYING = (
    r"(?:saying|showing|printing|listing|writing|describing|explaining|mentioning|quoting|pasting|displaying"
    r"|sketching|illustrating|demonstrating|documenting)"
)
_ONLY = (
    r"(?:nur|lediglich|bloß|seulement|juste|simplement|solo|só|apenas|soltanto|alleen|enkel|bara|endast|kun|bare|tylko"
    r"|только|просто|sadece|jen)"
)
_SHOWING = (
    r"(?:zeige|erkläre|beschreibe|skizziere|montre|décris|muestro|enseño|mostro|mostrando|toon|visar|viser|pokazuję|opisuję"
    r"|показываю|описываю|gösteriyorum|ukazuji)"
)
_NEVER_MADE = Vocabulary(
    rf"""(?:would|could|might|should) have \w+
    (?:only|merely|simply) (?:going to |gonna )?{_SAYS} / (?:only|merely|simply|just) {_SAYING}
    just (?:say|show|describe|explain|mention|quote|sketch|illustrate)
    {_SAYS} (?:you )?(?:what|how) (?:i|we|it|the call|a call|one) (?:would|could|might)
    (?:call|calls|command|commands|request|one|thing|action|step|what|sort|kind)(?: of \w+)? (?:that |
    which )?(?:i|we|you|nobody|one) (?:must|will|would|should|shall|can|may|could|do|did|am|are)(?: not|n't| never)
    (?:cannot|can't|won't|mustn't|shouldn't|wouldn't|couldn't|didn't) (?:make|run|send|execute|issue|call)
    not like (?:this|that|so) / how not to / nicht so / so nicht / pas (?:comme|ainsi) / (?:así|asi) no / no (?:así|asi)
    non così / così no / assim não / não assim / zo niet / niet zo / inte så / så (?:inte|ikke) / ikke (?:så|slik|sådan)
    nie tak / tak nie / takhle ne / не так / так не / böyle değil / nicht aus(?:geführt|führen) / nur gezeigt
    nur (?:ein beispiel|zur (?:anschauung|illustration|veranschaulichung)) / hätte ich / (?:j'aurais|on aurait) \w+
    (?:habría|hubiera|teria|avrei) \w+ / solo (?:muestro|enseño|mostro) / só (?:mostro|mostrando)
    {_ONLY}(?: \w+){{0,3}} {_SHOWING} / {_SHOWING}(?: \w+){{0,3}} {_ONLY}
    laat (?:alleen|enkel|slechts) (?:\w+ ){{0,3}}zien
    aussieht / aussehen / aussähe / zo ziet / eruit$ / ecco come / çalıştırm\w+"""
)
_VERDICTS = re.compile(r"^[\s*_>#-]*[❌✅🚫⛔👎👍✔✗✘✓❎☑]")
_DOCUMENTS = Vocabulary(
    r"""^what (?:the|your|my|his|her|their|an?) \w+ \w+
    (?:wrong|right|good|bad|correct|incorrect|expected|actual|before|after|old|new|input|output|original|raw)
    (?:log|logs|transcript|completion|excerpt|solution|exercise|answer|prompt|manual|handbook|spec|specification|
    readme|chapter|section|figure|listing|appendix|quiz|slide|fixture|dataset|transcription|message|document|article|
    page|record|trace|payload|turn|screenshot|paper|book|guide|reference|standard|variant|version|option|case)(?: \d+)?
    falsch / richtig / faux / juste / incorrecto / correcto / mal / bien / errado / certo / sbagliato / giusto / fout
    goed / fel / rätt / źle / dobrze / неправильно / правильно / yanlış / doğru / vorher / nachher / avant / après
    antes / después / depois / prima / dopo / voor / na / före / efter
    protokoll / anleitung / handbuch / ausgabe / rohtext / antwort / lösung / aufgabe / auszug / nachricht / seite
    abschnitt / kapitel / journal / manuel / sortie / réponse / solution / exercice / extrait / chapitre / registro
    salida / respuesta / solución / ejercicio / extracto / mensaje / página / sección / capítulo / saída / resposta
    exercício / trecho / mensagem / seção / risposta / soluzione / esercizio / estratto / messaggio / pagina / capitolo
    uitvoer / antwoord / oplossing / oefening / bericht / hoofdstuk / utdata / svar / lösning / övning / meddelande
    odpowiedź / rozwiązanie / zadanie / журнал / ответ / решение / задание / вывод / сообщение
    çıktı / yanıt / çözüm"""
)
_DOCUMENTS_PARTS = Fragments(
    """错误 / 正确 / 日志 / 输出 / 答案 / 练习 / 文档 / 手册 / 間違い / 正しい / ログ / 出力 / 解答 / 課題 / 資料
    잘못 / 올바른 / 로그 / 출력 / 정답 / 문제 / 문서"""
)
_FORBIDS = re.compile(
    r"^(?:please |so |and |but |warning |attention |caution |important |whatever happens )*"
    r"(?:do not|don't|never|avoid|beware)\b(?! (?:worry|panic|forget|hesitate|mind|be|need|know))"
)
_ABOUT_CALLS = Vocabulary(rf"{_RUN} / this / that / these / it / like")
_ITEM = re.compile(r"[ \t]*(?:[-*+•–]|\d{1,3}[.)]|\([a-z\d]\))[ \t]")
_LONG_WORDS, _LONG_PARTS = 5, 12
_GOES_ON = re.compile(r"(?:and|und|et|y|e|en|och|og|i|oraz|и|ve) \w")
_NEVER = Vocabulary(
    """nunca / jamais / jamás / niemals / nooit / никогда / ніколи / aldrig / aldri / nigdy / nikdy
    koskaan / asla
    mai / đừng / jangan / verboten / interdit / prohibido / proibido / vietato / запрещено / verboden / zabronione
    zakázáno / förbjudet / forbudt / yasak / không được / dilarang / ποτέ / μην / niciodată / soha / tilos / älä
    älkää"""
)
_NOT_ELSEWHERE = Vocabulary(
    r"""nicht / nie / no / non / não / ne / n'\w+ / pas / niet / не / inte / ikke / ei / en / không / tidak / δεν
    δε / nu / nem / kein / keine / keinen"""
)
_RUN_ELSEWHERE = re.compile(
    r"(?<!\w)(?:n'|l'|d')?(?:ausf|führ|mach|tun\b|tue\b|aufruf|ruf|send|schick|lösch|start|verwend"
    r"|benutz|versuch|erstell"
    r"|exécut|lanc|fai|fer\w|appel|envoy|utilis|supprim|ejecut|execut|hac|haz|har[éeá]|faz|faç"
    r"|far[eéò]|llam|cham|envi"
    r"|borr|us[aeo]|corr|rod[ae]|apag|esegu|fac|chiam|invi|cancell|voer|uitv|doe|gebruik|stuur|verstu|verwijd|выполн"
    r"|запуск|запуст|дела|сдела|вызыв|вызов|отправ|использ|удал|вико|роби|зроб|надсил|kör|gör"
    r"|använd|utför|skick|radera"
    r"|kjør|gjør|bruk|sende|slett|wykon|rób|zrób|uruch|uży|wyśl|spou[sš]|spust|prov[eá]d|děl|odesl"
    r"|pošl|suorit|tee|aja\b"
    r"|käytä|lähet|chạy|thực|gửi|jalank|lakuk|kirim|çalıştır|gönder|εκτελ|στείλ|τρέξ|κάνω|rul|trimit|futtat|küld)"
)
_SHIELDS = Vocabulary(
    """if / whether / why / that / who / which / what / where / when / how / ob / dass / warum / weshalb / was
    wo / que
    qué / si / por qué / pourquoi / où / che / se / что / почему / где / щоб / чому / waarom / dat / om / varför / att
    czy / dlaczego / že / proč / γιατί / dacă"""
)
_CLAUSE = re.compile(
    r"[,;—–…،、，；]\s*|\s+-\s+|:\s+"
    r"|\s+(?=(?:but|so|and|therefore|hence|then) (?:i|we|let|i'm|i'll|now)\b)"
)

_ABOUT = (
    r"(?:how|what|an? (?:example|sample|call|illustration|template)"
    r"|the (?:format|syntax|shape|structure|template|notation|call|json))"
)
_MAKES = Vocabulary(
    rf"""let me(?! (?:know|be clear|stress|repeat|remind|show(?: you)? {_ABOUT}|explain|illustrate|quote|
    describe|give))
    let us / let's / lemme
    (?:i'll|i will|we'll|we will)(?! (?:not|never)\b)(?! (?:show(?: you)? {_ABOUT}|explain|illustrate|quote|describe))
    i'm (?:now |just |also |therefore |going |first |then |\w+ly )*(?!waiting|not)\w+ing
    i am (?:now |just |also |therefore |first |then |\w+ly )*(?!waiting|not)\w+ing
    (?:so|now|next|first|then|therefore|again|here|instead) i (?!would|could|might|did|was|had|used|called|ran|
    sent)\w+
    i (?!(?:see|notice|spot|find|get|read|observe)(?: (?:this|these|the following|an?) |
    $))(?!suggest|propose|recommend|would|could|might|did|was|had|have(?! to)|
    found|saw|ran|sent|made|wrote|said|got|think|thought|guess|mean|am|never|
    \w+(?<!ne)ed\b|\w+n't\b)\w+
    (?:this|that|it|which)(?:'ll| will| should) (?:tell|show|give|let|help) (?:us|me) / ^step \d+ / ^start(?:ing)? with
    i(?:'d| would) (?:like to|rather) / (?:lo|la|los|las|te|se lo) \w+o / one moment
    just a (?:moment|second|sec) / hold on while / right away
    be right back / doing (?:that|it|this) now / here (?:goes|we go) / on it / right now / ^now / ^next(?! step)
    ^first
    ^so$ / ^then / ^finally / ^also / ^again / now$ / as soon as i / once i have / once i've / when i have
    jetzt / sofort / gleich / zuerst / zunächst / ich (?!würde|könnte|habe|hätte|hatte|kann nicht)\w+ / lass mich
    \w+ ich(?! würde| könnte| habe| hätte) / einen moment / sobald / maintenant / tout de suite / d'abord
    je (?!ne |n'|\w+rais\b)\w+ / j'(?!ai |avais )\w+ / laissez-moi / laisse-moi / un instant / voyons / dès que
    ahora(?: mismo)? / enseguida / voy a / vamos a / déjame / permíteme / un momento / primero / en cuanto
    agora(?: mesmo)? / já / vou / vamos / deixe-me / deixa-me / um momento / primeiro / assim que / logo que
    subito / adesso / ora / lasciami / fammi / vado a / non appena / appena / сейчас / теперь / сначала / дайте мне
    давайте / как только / зараз / спочатку / щойно / nu / even kijken / laat me / ik (?!zou|heb|had)\w+ / ik ga
    zodra
    låt mig / jag (?!skulle|har|hade)\w+ / så snart / jeg (?!ville|har|hadde)\w+ / la meg / teraz / zaraz / najpierw
    pozwól / teď / hned / nejdřív / nyt / ensin / şimdi / hemen / önce / để tôi / bây giờ / ngay / sekarang / segera
    saya akan / biar saya / mari / τώρα / αμέσως / θα (?:το )?(?:δω|ελέγξω|ψάξω) / acum / most"""
)
_MAKES_PARTS = Fragments(
    """我来 / 我先 / 我将 / 我现在 / 让我 / 讓我 / 我去 / 我帮 / 我会先 / 现在 / 正在 / 马上 / 立即 / 稍等 / 请稍
    今から / まず
    (?<!なり)(?<!あり)(?<!示し)(?<!だけ見せ)ます$ / ますね$ / 少々お待ち / 지금 / 먼저 / 겠습니다 / 할게요 / 잠시만
    الآن / سأ / अभी / रहा हूँ / रही हूँ"""
)
_GERUND = re.compile(
    r"^(?:now |and |ok |okay |sure |alright |great |done |yes |so |next |then |first |just |also |again |still )*"
    r"(?!warning|waiting|awaiting|pending|according|nothing|something|anything|everything|during|regarding|assuming"
    r"|supposing|string|thing|morning|evening|meeting|following|missing|ending|heading|pricing|finding|imagining"
    r"|pretending|using|showing|illustrating|demonstrating|explaining|describing|quoting|documenting|simulating"
    r"|mocking|rehearsing|training|setting|being|having|cuando|quando|secondo|mondo)(?!.* (?:would|could|might) )"
    r"(?:[a-z]{2,}ing|[^\W\d_]{2,}(?:ando|endo|indo))(?![\w'])"
)

_SPOKEN_O = (
    r"^(?:y |e |ed |ahora |ora |agora |luego |poi |depois )?(?!como|come|cuando|quando|ejemplo|esempio|exemplo|questo"
    r"|formato|segundo|secondo|solo|pero|nunca|modelo|modello|metodo)[^\W\d_]{3,}(?:o|é|ò|rei)"
)
_FIRST_PERSON = Vocabulary(
    rf"""^[а-яё]{{2,}}(?:[аеияую]ю|[шщчжд]у|юсь|усь)
    ^[a-ząćęłńóśźżáéíóúýčďěňřšťůž]{{3,}}(?:am|ę|uji|ám)(?= )
    \w+(?<!m)(?:[ıiuü]yorum|[ae]ca[ğg][ıi]m|[ae]ce[ğg]im|[ae]y[ıi]m|[ae]l[ıi]m)$
    {_SPOKEN_O}(?= (?:el|la|los|las|lo|il|gli|le|os|as|um|uma|un|una|si|se|che|que|qué|su|del|della|cuánt\w+|quant\w+|
    con|com|per|para|tu|em|en|no|na|i|o|a) )"""
)

_LIKE = r"(?:like (?:this|that|so|these|the following|it)|as follows|thus|so|such as(?: this)?|the following)"
_REPORTS = Vocabulary(
    rf"""(?:would|might|could) have \w+ / looks?(?: \w+){{0,2}} {_LIKE} / looked(?: \w+){{0,2}} like(?: this| that)?
    (?:written|called|used|invoked|formatted|encoded|declared|defined|stored|expressed) (?:like this|like so|
    as follows|as)
    (?:you|one|users?|people|they|clients?|developers?)(?: can| could| may| might| should| must| would| need to|
     have to| then| simply)* {_RUN}(?: \w+){{0,5}} {_LIKE}
    (?:you|one) (?:can|could|may|might|should|must|need to|have to)(?: \w+){{0,2}} (?:{_RUN}|write|mock|put|
    enter|add|define)
    (?:use|try|write|enter|type|paste|copy|take|put|fill) (?:this|these|the following|something like) / fill in
    replace (?:\w+ )?\w+ (?:with|by) / such as$ / looks? like$ / like$ / (?:what|how) not to / like so$
    ^(?:todo|skipped|ignored|blocked|denied|rejected|cancell?ed|simulated|disabled|results?|option \w|not run)$
    what you (?:asked|wanted|sent|wrote) / (?:was|were|been|got) (?:rejected|denied|refused|blocked|ignored|declined)
    (?:i|we|you|he|she|they|it)(?: have| had| has|'ve|'d)?(?: \w+ly| just| then| also| already| first|
     once)* (?:called|used|ran|sent|issued|tried|wrote|denied|typed|pasted|said|emitted|rejected|posted|
    answered|replied|made|proposed)
    earlier / previously / yesterday / last (?:night|week|month|year|turn|run|session) / back then / once upon a time
    in the (?:previous|last|first|second|third) (?:turn|step|run|message|session|answer)
    in my (?:last|previous|first) \w+
    (?:it was|that was|those were|these were|it is|that is|this is) (?:this one|these|what|how|the one)
    for (?:reference|illustration|context|comparison) / suppose / imagine / pretend / assume / hypothetically
    in theory
    dry run / (?:wrong|bad|broken|malicious|injected|suspicious|unsafe|dangerous|harmful|fake|invalid)(?! path|
     file| host)
    (?:comes|stems|originates) from / prepared / drafted / (?:only|just) an? draft
    sieht(?: \w+){{0,3}} aus / wie folgt / folgendermaßen / gestern / vorhin
    (?:ich|wir) (?:habe|haben|hatte|hatten)
    ressemble / comme (?:ceci|cela|suit|ça) / hier / j'ai / nous avons / ayer / hubiera / ontem / ieri / вчера / учора
    gisteren / igår / wczoraj / včera / eilen / dün / hôm qua / kemarin / χθες"""
)
_REPORTS_PARTS = Fragments(
    """不要 / 请勿 / 切勿 / 绝不 / 勿 / 别运行 / 不会执行 / 没有执行 / 并没有 / 拒绝 / しないで
    実行は?しま?せん / はしません / 않고 / 不会执行 / 不执行 / 実行していません / してはいけ / 하지 마 / 하지 않
    昨天 / 之前 / لا ت / لن / नहीं / मत / לא אריץ / אל ת / อย่า / ไม่"""
)
_MIGHT = Vocabulary(
    rf"""(?:would|might|could|may)(?: (?:then|simply|just|also|only|well|now|instead|probably|always))* (?:be|
    emit|answer|respond|reply|write|send|look|return|output|produce|print|say|have|ask|go|call|use|generate|
    come|read|contain|become|{_RUN})
    (?:i|we)'d(?: (?:simply|just|then|probably|only))* (?!like to|rather)\w+
    (?:i|we) would(?: (?:simply|just|then))* (?!like to|rather)\w+
    the (?:line|lines|sentence|string|comment|snippet|entry|record|sample|fixture|transcript|excerpt|quote)
    (?:we|you|one|they) (?:can|could|may|might) / (?:can|could) be \w+ / is possible / proposed / proposal
    suggestion / draft
    würde / würden / könnte / könnten / so aus / serait / pourrait / je \w+rais / sería / podría / así / como sigue
    seria / poderia / assim$ / sarebbe / potrebbe / così / come segue / бы / вот так / так$ / такой / такая / таков
    выглядит / виглядає / zou / ziet er / als volgt / skulle / ser ut / byłoby / wygląda / tak$ / vypadá / takto
    näyttää
    şöyle / gibi / man kann / wir können / on peut / se puede / podemos / si può / possiamo / pode-se / можно / можем
    je kunt / man kan / można / lze"""
)
_MIGHT_PARTS = Fragments(
    """例如 / 比如 / 示例 / 格式 / 例子 / 样例 / 如下 / 语法 / 書式 / 形式は / 例えば / たとえば / のように
    次のとおり / 예를 들 / 예시 / 형식 / 다음과 같 / مثال / उदाहरण / 可以 / できます"""
)
_EXAMPLE = (
    r"(?:for example|for instance|e\.g\.?|as an example|examples?|samples?|zum beispiel|z\. ?b\.|beispiel"
    r"|beispielsweise|par exemple|exemple|por ejemplo|ejemplo|por exemplo|exemplo|per esempio"
    r"|ad esempio|esempio|например"
    r"|пример|наприклад|приклад|na przykład|przykład|například|příklad|bijvoorbeeld|voorbeeld|till exempel|exempel"
    r"|for eksempel|esimerkiksi|esimerkki|örneğin|örnek|misalnya|contoh|contohnya|ví dụ|chẳng hạn"
    r"|παράδειγμα|de exemplu)"
)
_ILLUSTRATES = re.compile(
    rf"^(?:here(?:'s| is)|this is|an?|the|one|some|another|un|une|una|uma|ein|eine| )*{_EXAMPLE}(?!\w)(?!\.\w)"
    rf"|(?<!\w){_EXAMPLE}\W*$"
)
_NOUNS = Vocabulary(
    """formats? / syntax(?:es)? / templates? / schemas? / notations? / shapes? / snippets? / structures? / examples?
    samples? / illustrations? / definitions? / documentation / docs / tutorials? / usage / formate? / vorlagen?
    beispiele? / aufbau / schreibweise / modèles? / exemples? / syntaxe / formatos? / plantillas? / ejemplos?
    sintaxis
    exemplos? / sintaxe / modelos? / formati? / esemp[io]+ / sintassi / формат / синтаксис / шаблон / пример / приклад
    formaat / voorbeeld(?:en)? / składnia / przykład
    (?:this|that|these|those|here(?:'s| is| are)|below|above|following|the|your|my|our|its|
    an?)(?: \\w+){0,3} (?:calls?|attempts?|requests?|
    commands?|invocations?|payloads?|json|objects?|outputs?|responses?|tags?|blocks?|tool calls?|
    function calls?)(?: \\w+){0,2}
    ^(?:(?!tool |function )\\w+ )?(?:json|calls?|requests?|commands?|outputs?|inputs?|payloads?|responses?|
    react|hermes)$
    ^(?:outputs?|inputs?|logs?|traces?|results?|texts?) (?:of|from|for) \\w+"""
)
_POINTS = Vocabulary(
    """this / these / the following / below / as above / dies / dieses / diese / folgende[sn]? / das$ / ceci
    cela
    suivante? / esto / esta / siguiente / isto / seguinte / questo / questa / seguente / это / этого / этот
    следующее
    це / dit / deze / het volgende / det här / detta / dette / følgende / to$ / tego$ / następujące / toto / tätä
    tämä
    bunu / şunu / ini / berikut / này / sau đây / αυτό / το εξής
    (?:^|, )(?:then |just |simply )*(?:paste|write|type|enter|send|use|emit|copy|say|reply|output)$"""
)
_POINTS_PARTS = Fragments("这个 / 以下 / 这条 / これ / 次の / 이것 / 다음")
_ANNOUNCES = re.compile(
    r"(?:here(?:'s| is|'s) )?(?:the |my |a )?(?:(?:real|actual|right|correct|corrected|proper|fixed|new) )*"
    r"(?:(?:tool|function) call|(?<=real )call|(?<=actual )call|(?<=corrected )call|(?<=proper )call|(?<=fixed )call)$"
)
_TELLS = re.compile(
    r"(?<!\w)(?<!to )(?:shows?|showed|contains?|contained|reads?|says?|said|writes?|wrote|prints?"
    r"|printed|emits?|emitted"
    r"|outputs?|answers?|answered|repli(?:es|ed)|responds?|responded|produces?|produced|generates?|generated|returns?"
    r"|returned|sends?|sent|receives?|received|logged|logs|was|were|did|means?|declares?|begins?"
    r"|starts?|stores?|holds?"
    r"|has|had|consists?|knows?|displays?|displayed|flickered|uses?|bedeuten|enthält|zeigt|lautet"
    r"|schreibt|sagt|contient"
    r"|contenait|montre|dit|écrit|contiene|muestra|dice|escribe|contém|mostra|diz|scrive|содержит|показывает|пишет"
    r"|гласит)(?: (?:with|a|an|the|this|these|that|following|json|object|call|calls|lines?|string"
    r"|message|like|one|text"
    r"|what|happened|something|as|list|its|actions?|of|out|in|to|it|follows|at|hidden|such|form|forms|labels?|tags?"
    r"|two|three|four|five))*\W*$"
)
_OFFERS = Vocabulary(
    r"""if you(?:'d)? (?:like|want|wish|prefer|agree|confirm|approve|say) / should you / let me know
    just (?:say|confirm) / (?:a)?wait(?:ing)? (?:for )?your / awaiting / pending your
    with your (?:permission|approval|ok|consent)
    (?:only )?(?:once|after|when|until|before|unless) you (?:confirm|approve|agree|say|allow|give)
    until you (?:answer|reply|decide|choose|pick|tell)
    (?:after|upon|on|for|need|needs|without) your (?:ok|okay|permission|approval|confirmation|consent|go-ahead|review)
    only (?:if|once|when) you / please (?:review|confirm|approve) / (?:shall|should|may) i
    before i (?:run|send|execute)
    (?:do|would|did) you (?:want|like|mean|prefer|wish)
    wenn du (?:möchtest|willst|magst) / wenn sie (?:möchten|wollen|wünschen) / falls (?:du|sie)
    soll(?:en|te)? (?:ich|wir)
    möchtest du / möchten sie / willst du / darf ich / meinst du / auf wunsch
    si vous (?:voulez|souhaitez|le souhaitez)
    si (?:vous êtes|tu es) d'accord / si tu (?:veux|le souhaites) / voulez-vous / veux-tu / dois-je / souhaitez-vous
    puis-je / dites-moi / si quieres / si (?:lo )?desea[s]? / quieres que / desea que / puedo
    se (?:você )?quiser(?:es)?
    si está[s]? de acuerdo / se desejar / quer que / queres que / deseja que / posso / basta confirmar
    é só confirmar
    se vuoi / se desidera / se preferisci / se sei d'accordo / vuoi che / desidera che / devo
    если (?:хотите|хочешь|нужно|вы не против|вы согласны) / хотите / хочешь / мне (?:выполнить|запустить|сделать)
    якщо (?:хочете|хочеш) / als (?:je|u) wil(?:t)? / wil (?:je|u) / zal ik / om du vill / ska jag / vill du
    hvis du vil
    skal jeg / jeśli chcesz / czy mam / jestli chce(?:te|š) / haluatko / jos haluat / ister mi\w* / istersen\w*
    nếu bạn muốn / bạn có muốn / kalau (?:anda|kamu) / jika (?:anda|kamu) / apakah / αν θέλετε / αν θέλεις
    dacă doriți"""
)
_OFFERS_PARTS = Fragments(
    """如果您 / 如果你 / 需要我 / 要不要 / 是否 / 要我 / 吗[？?] / よろしければ / しましょうか / ますか
    원하시면 / 할까요 / 드릴까요 / هل / क्या"""
)
_WITHDRAWS = re.compile(
    r"^(?:actually|wait(?! (?:a|one|for|while))|(?:hold|hang) on(?! (?:a|one|while|just|please))"
    r"|never ?mind|scratch that|on second thoughts?|stop|cancel|forget|oops|hmm|no,"
    r"|moment mal|halt|warte|doch nicht|attendez|en fait|espera|mejor no|aspetta|подождите|стоп|等等|算了|待って)\b"
)
QUOTED = re.compile(
    r"`[^`\n]{0,200}`|“[^”\n]{0,200}”|\"[^\"\n]{0,200}\"|«[^»\n]{0,200}»|„[^“”\n]{0,200}[“”]|\([^()\n]{0,200}\)"
    r"|（[^（）\n]{0,200}）|\*\*|__"
)
ENDS = re.compile(r"[.!?…](?=\s|$)|[。！？؟।]|\n")
_QUESTION = re.compile(r"[?？؟](?=\s|$)")
_STOPS = (".", "!", "…", "。", "！", "।")
_FINAL = re.compile(r"[\s:：]*$")
BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The last sentence before a call in lower case, its clauses, whether it is a question and whether it has ended."""

    whole: str
    clauses: tuple[str, ...]
    asks: bool
    ended: bool


def _last_sentence(text: str) -> _Sentence:
    written = _FINAL.sub("", text[-_LONGEST:]).replace("’", "'")
    bare = (QUOTED.sub(" ", written).strip() and QUOTED.sub(" ", written).rstrip()) or written.strip("() ")
    asks = bare.endswith(("?", "？", "؟"))
    ended = text.rstrip().endswith(_STOPS)
    bare = _FINAL.sub("", bare.rstrip(".!?…。！？؟। "))
    begin = max((end.end() for end in ENDS.finditer(bare)), default=0)
    whole = BLANKS.sub(" ", bare[begin:]).strip(" *#_>-").lower()
    return _Sentence(whole, _clauses(whole), asks, ended)


def _clauses(sentence: str) -> tuple[str, ...]:
    return tuple(clause.strip() for clause in _CLAUSE.split(sentence) if clause and clause.strip())


def _refuses(clause: str) -> bool:
    if _FORBIDS.match(clause) or _unshielded(_REFUSES, clause) or _unshielded(_NEVER, clause):
        return True
    return _unshielded(_NOT_ELSEWHERE, clause) and _RUN_ELSEWHERE.search(clause) is not None


def _unshielded(pattern: Vocabulary, clause: str) -> bool:
    """Whether a word stands in a main clause: "I check why it does not start" negates nothing of the check."""
    found = pattern.search(clause)
    shield = _SHIELDS.search(clause) if found is not None else None
    return found is not None and (shield is None or shield.start() >= found.start())


def is_gerund(clause: str) -> bool:
    """Whether a clause in lower case says what is being done, without a subject: "checking the folder"."""
    return _GERUND.match(clause) is not None


def _makes(clause: str) -> bool:
    return any(pattern.search(clause) for pattern in (_MAKES, _MAKES_PARTS, _FIRST_PERSON)) or is_gerund(clause)


@lru_cache(maxsize=KEPT)  # a stream is read again while it grows
def before(text: str) -> Wording:
    """What the words before a call say."""
    sentence = _last_sentence(text)
    if not sentence.whole:
        return Wording.SILENT
    if offers(sentence.whole):
        return Wording.SHOWS
    said = _said(sentence.clauses)
    if sentence.asks:
        return Wording.SHOWS if said is Wording.SHOWS else Wording.UNSURE
    if said in (Wording.MAKES, Wording.SHOWS):
        return said
    if _VERDICTS.match(text.rstrip()[text.rstrip().rfind("\n") + 1 :]):
        return Wording.SHOWS
    if _ends_list(text):
        return Wording.SILENT
    if said is not Wording.SILENT:
        return said
    return Wording.UNSURE if _asks_before(text) else _spoken_of(text, sentence)


def _asks_before(text: str) -> bool:
    """Whether the reader is asked something before a last sentence that does not speak of making the call."""
    return _QUESTION.search(QUOTED.sub(" ", text[-_LONGEST:])) is not None


def _spoken_of(text: str, sentence: _Sentence) -> Wording:
    """What a sentence says that neither makes a call nor denies it."""
    if _ANNOUNCES.match(sentence.whole):
        return Wording.SILENT
    open_ended = not sentence.ended or _POINTS.search(sentence.whole) is not None
    if open_ended and " " in sentence.whole and _TELLS.search(sentence.whole):
        return Wording.SHOWS
    short = sentence.whole.count(" ") < _LONG_WORDS
    if _ILLUSTRATES.search(sentence.whole) and (short or open_ended):
        return Wording.UNSURE
    if _NOUNS.search(sentence.whole) and not sentence.ended:
        return Wording.UNSURE
    if _leads(text) and _describes(sentence.whole):
        return Wording.UNSURE
    return Wording.UNSURE if _points(text, sentence) or _refused_before(text, sentence) else Wording.SILENT


def _ends_list(text: str) -> bool:
    """Whether a list ends before the call: its last item is no sentence about the call."""
    lines = text.rstrip().rsplit("\n", 2)
    return (
        text.rstrip(" \t").endswith("\n") and not _leads(text) and len(lines) > 1 and all(map(_ITEM.match, lines[-2:]))
    )


def _leads(text: str) -> bool:
    return text.rstrip().endswith((":", "："))


def _describes(sentence: str) -> bool:
    """Whether a sentence that leads up to a call is about a document, or long and without anybody who makes a call."""
    if _GOES_ON.match(sentence):
        return False
    long = sentence.count(" ") >= _LONG_WORDS if sentence.isascii() or " " in sentence else len(sentence) >= _LONG_PARTS
    return long or any(words.search(sentence) for words in (_DOCUMENTS, _DOCUMENTS_PARTS))


def _points(text: str, sentence: _Sentence) -> bool:
    """Whether a sentence leads up to the call by pointing at it, and says nothing of making it."""
    return _leads(text) and any(pattern.search(sentence.whole) for pattern in (_POINTS, _POINTS_PARTS))


def _refused_before(text: str, sentence: _Sentence) -> bool:
    """Whether the sentence before the last one refuses: "I can't do that. The call you want:"."""
    earlier = text[-_LONGEST:].lower().rfind(sentence.whole[:20])
    return earlier > 0 and any(map(_refuses, _last_sentence(text[-_LONGEST:][:earlier]).clauses))


def _said(clauses: tuple[str, ...]) -> Wording:
    """What the last clause says that says anything."""
    for at in reversed(range(len(clauses))):
        clause = clauses[at]
        if _NEVER_MADE.search(clause):
            return Wording.SHOWS
        if _refuses(clause) or _REPORTS_PARTS.search(clause):
            if at and _FORBIDS.match(clause) and not _ABOUT_CALLS.search(clause) and _makes(clauses[at - 1]):
                continue
            return Wording.SHOWS
        makes = _makes(clause)
        if makes and is_gerund(clause) and any(_unshielded(_REFUSES, earlier) for earlier in clauses[:at]):
            return Wording.SHOWS
        if not makes and _REPORTS.search(clause):
            return Wording.SHOWS
        if _MIGHT.search(clause) and not makes:
            return Wording.UNSURE
        if makes:
            return Wording.MAKES
        if _MIGHT_PARTS.search(clause):
            return Wording.UNSURE
    return Wording.SILENT


def withdraws(sentence: str) -> bool:
    """Whether a sentence in lower case takes back what was said before it."""
    return _WITHDRAWS.match(sentence) is not None


def forbids(sentence: str) -> bool:
    """Whether a sentence in lower case forbids or refuses a call, or says that none was made."""
    return any(map(_refuses, _clauses(sentence))) or _REPORTS_PARTS.search(sentence) is not None


def offers(sentence: str) -> bool:
    """Whether a sentence in lower case offers a call or asks for it to be allowed."""
    return _OFFERS.search(sentence) is not None or _OFFERS_PARTS.search(sentence) is not None
