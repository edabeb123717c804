"""What the words behind a call say. A model that calls a tool stops there, or adds that it waits and what comes next.

A short sentence of the first person about waiting or the next step goes with a call that is made, and so do two or
three words ("Done.", "More soon."). Everything else behind a call (an explanation, a question, a report, the next
section of a document) is what stands behind a call that is only shown, in any language. So only waiting needs words.
"""

import re
from functools import lru_cache

from toolwire.wire.text.wording import (
    BLANKS,
    ENDS,
    KEPT,
    QUOTED,
    Fragments,
    Vocabulary,
    Wording,
    forbids,
    is_gerund,
    offers,
    withdraws,
)

_LOOKED_AT = 400
_LONGEST = 240
_FEW_WORDS, _FEW_CHARACTERS = 3, 40
_SENTENCES = 4
_HEADING = re.compile(r"^[ \t]*(?:#{1,6}[ \t]|\*\*[^*\n]{1,60}\*\*[ \t]*$)[^\n]*\n*", re.MULTILINE)
_MARKS = "↑^*_-—–#> "
_ASKS = ("?", "？", "؟")
_WAITS = Vocabulary(
    r"""(?:i'll|i will|we'll|we will|i shall)(?! (?:not|never|only|need|explain|show|describe|walk|break|quote)\b)
    i'm (?:now |just |also |still |\w+ly )*(?!not|sorry|afraid|unable)\w+ing
    let me(?! (?:know|explain|show|stress|break|walk|remind))
    (?:one|a|just a|another) (?:moment|second|sec|minute) / (?:please |just )?(?:wait|stand by|hold on|hang on)
    ^(?:a)?waiting (?:for|on) / bear with me / hang tight / sit tight / shortly / be right back / back in a / more soon
    once (?:i have|i've|i know|i see|the|that|this|it|they|these) / as soon as
    (?:when|after|until|and) (?:it|that|this|the \w+|they) (?:is|are|has|have|comes?|arrives?|finish\w*|returns?|
    completes?|ends?|loads?)
    ^(?:then|next|afterwards|after that|after this|from there)(?! (?:you|one|the (?:server|client|host|user|model)))
    (?:to|will) follow$ / coming (?:up|right up) / on (?:its|the) way / in progress / under ?way
    (?:thanks|thank you)(?: \w+){0,3} (?:waiting|patience) / thanks$ / thank you$ / anything else
    ich (?!habe|hätte|würde|könnte|kann|schlage|empfehle|zeige|erkläre|meine|denke|rate|führe)\w+
    (?:melde|warte|komme) (?:mich|auf|gleich) / sobald / gleich / einen (?:kleinen |kurzen )?(?:moment|augenblick)
    (?:moment|augenblick|geduld)(?: bitte| noch)?$ / bitte (?:kurz )?(?:warten|um geduld|gedulden)
    ^(?:danach|anschließend|dann|als nächstes|im anschluss)(?! (?:wird|werden|steht|stehen|hat|ist|sind|muss))
    in kürze / bis gleich
    (?:this|it|that) (?:may|might|will|can|could|should)(?: only| just)? take / (?:give me|hang on|hold on)
    un (?:petit )?(?:instant|moment) / dès que / (?:veuillez )?patient\w+ / merci de (?:patienter|votre patience)
    je (?!ne |n'|l'ai|montre|propose|suggère|recommande|pense|crois|vous (?:montre|explique|propose|conseille))\w+
    jag (?!har|skulle|föreslår|visar|tror|kan)\w+ / j'attends / en attente / bientôt
    ^(?:ensuite|puis|après)(?:,| je)
    un (?:momento|segundo|momentito) / en cuanto / tan pronto / enseguida / ahora (?:mismo|vuelvo) / vuelvo
    (?:te|le|os|les) (?:aviso|avisaré|informo|informaré|digo|diré|cuento|confirmo|confirmaré|respondo)
    esper(?:ando|o|e|a)(?: la| el| un| por)?
    ^(?:luego|después|a continuación),? \w+(?:o|é)(?= )
    (?:um|só um) (?:momento|instante|segundo|minuto) / (?:só um )?(?:momentinho|minutinho|segundinho)
    assim que / logo que / já (?:volto|já|te|lhe)
    (?:eu )?(?:aviso|volto|retorno|informo|confirmo)$ / (?:te|lhe|o|a) (?:aviso|informo) / aviso / aguard\w+ / em breve
    ^(?:depois|em seguida),? \w+(?:o|ei)(?= )
    un (?:momento|attimo|secondo|istante) / (?:non )?appena / torno / (?:in )?attes[ao] / attend\w+ / (?:fra|tra) poco
    a breve / (?:ti|le|vi) (?:faccio|dico|dirò|avviso|aggiorno|confermo) / ^(?:poi|dopo),? \w+(?:o|ò)(?= )
    een (?:moment|ogenblik|seconde)(?:je)? / (?:moment|ogenblik)je / zodra / (?:even )?geduld
    (?:ik|zo) (?:kom|ben|laat|meld|wacht|geef|kijk|ga) / zo terug / ^(?:daarna|vervolgens) \w+ ik / dadelijk / straks
    återkommer / strax / (?:ett|en) (?:ögonblick|sekund|stund) / så (?:snart|fort) / (?:jag )?väntar / vänta / snart
    (?:et|ett) (?:øyeblikk|øjeblik) / straks / (?:jeg )?venter / (?:kommer|vender) (?:tilbake|tilbage) / så snart
    ^(?:sedan|därefter|deretter|derefter) \w+ (?:jag|jeg)
    hetki(?:nen)? / odota\w* / palaan / kohta / pian / heti kun
    (?:chwil(?:a|ę|eczkę|kę|ka|ke)|moment(?:ik)?) / zaraz / (?:jak|gdy) tylko / wkrótce / czekam / (?:dam|daję) znać
    proszę czekać / wrócę / ^(?:potem|następnie) \w+(?:ę|am|em)(?!\w)
    moment(?:ík)? / (?:chvíli|chvilku|chvilička) / jakmile / hned / čekám / ozvu se / počkejte
    (?:минут(?:ку|очку|у)|секунд(?:у|очку|ку)|момент) / сейчас / как только / скоро / (?:жду|ожидаю|ждём|ожидаем)
    подождите / (?:сообщу|вернусь|отвечу|расскажу|напишу|покажу) / ^(?:затем|потом|после этого) \w+(?:ю|у)(?!\w)
    хвилин(?:ку|у) / зараз / щойно / як тільки / чекаю / повідомлю / зачекайте
    bir (?:dakika|saniye|an|saniyenizi) / (?:lütfen )?bekle(?:yin|yiniz|r misiniz|niz) / bekliyorum / hemen / birazdan
    az sonra / \w+(?:[ae]ca[ğg][ıi]m|[ae]ce[ğg]im|[ıiuü]yorum) / chờ / đợi / (?:tôi|mình) sẽ / sau đó tôi
    tunggu / sebentar / (?:saya )?akan (?:saya|segera) / saya akan / setelah itu saya / mohon (?:tunggu|menunggu)
    o clipă / un moment / imediat ce / revin / aștept / egy pillanat(?:ot)? / amint / várok / hamarosan
    (?:μια|ένα) (?:στιγμή|λεπτό) / μόλις / περιμένω / σύντομα"""
)
_WAITS_PARTS = Fragments(
    """稍等 / 稍候 / 请等 / 等待 / 片刻 / 马上 / 很快 / 我会(?!等您|等你) / 我将 / 我再 / 我就 / 然后我 / 接下来我
    一有结果 / お待ち / 少々 / しばらく / 待って / 待ち / 次第 / その後 / 続いて / 後ほど / すぐに
    結果が(?:出|届|来|返)
    잠시 / 기다 / 곧 / 는 대로 / 나오면 / 겠습니다 / 게요 / 그다음
    لحظة / انتظ / سأ / قريب / क्षण / प्रतीक्षा / एक पल"""
)
# Who acts in a description of calls; where nobody speaks of himself, "as soon as the server sees it" is one.
_OTHERS = Vocabulary(
    r"""(?:the|an?|your|its|le|la|l'|der|die|das|el|il|o|de) (?:client|server|host|parser|tag|model|user|runtime|
    gateway|system|assistant|agent|framework|template|sdk|api|application|program|tool|function|nutzer|benutzer|modell|laufzeit|
    serveur|modèle|utilisateur|hôte|outil|cliente|servidor|modelo|usuario|usuário|modello|utente|gebruiker|werkzeug)
    klienten / servern / modellen / användaren / klient / serwer / użytkownik / клиент / сервер / модель / пользователь
    istemci / sunucu / kullanıcı"""
)
_OTHERS_PARTS = Fragments(
    "客户端 / 服务器 / 模型 / 用户 / クライアント / サーバー / モデル / ユーザー / ホスト / 클라이언트 / 서버 / 모델"
)
_SELF = Vocabulary(
    "i / i'll / i'm / i've / we / we'll / me / ich / wir / mich / je / j'\\w+ / nous / ik / jag / jeg / я / мы"
)


def _sentences(text: str) -> list[str]:
    parts = (part.strip(_MARKS) for part in ENDS.split(text, maxsplit=2 * _SENTENCES))
    return [BLANKS.sub(" ", part).lower() for part in parts if part]


def _waits(sentence: str) -> bool:
    if is_gerund(sentence):
        return True
    if any(words.search(sentence) for words in (_OTHERS, _OTHERS_PARTS)) and not _SELF.search(sentence):
        return False
    return any(words.search(sentence) for words in (_WAITS, _WAITS_PARTS))


def _is_short(text: str) -> bool:
    """Whether a remark is so short that it explains nothing."""
    return text.isascii() and len(text) <= _FEW_CHARACTERS and text.count(" ") < _FEW_WORDS and ":" not in text


@lru_cache(maxsize=KEPT)
def after(text: str) -> Wording:
    """What the words behind a call say: it is under way, it is refused or asked about, taken back, or spoken about."""
    bare = QUOTED.sub(" ", _HEADING.sub("", text[:_LOOKED_AT])).replace("’", "'").strip()
    sentences = _sentences(bare)
    if not sentences:
        return Wording.SILENT if not text.strip("#*_ \n") else Wording.REMARKS
    first = sentences[0]
    if withdraws(first):
        return Wording.UNSURE
    waits = _waits(first)
    if any(map(offers, sentences)) or (forbids(first) and not waits):
        return Wording.SHOWS
    if any(mark in bare for mark in _ASKS):
        return Wording.SILENT if _is_short(bare) and waits else Wording.SHOWS
    if waits and len(bare) <= _LONGEST and not bare[0].islower():
        return Wording.MAKES
    return Wording.SILENT if _is_short(bare) and not bare[0].islower() else Wording.REMARKS
